//! Generates test weights: two random layers, every number format, and a vocabulary of bytes and a few pairs.

use std::path::Path;

pub(crate) const WIDTH: u64 = 256;
const INNER: u64 = 512;
const HEADS: u32 = 4;
const KEY_HEADS: u32 = 2;

/// A GGUF file under construction.
#[derive(Default)]
pub(crate) struct Making {
    values: Vec<u8>,
    values_count: u64,
    tensors: Vec<u8>,
    tensors_count: u64,
    bytes: Vec<u8>,
    chance: u64,
}

impl Making {
    fn text(into: &mut Vec<u8>, text: &str) {
        into.extend((text.len() as u64).to_le_bytes());
        into.extend(text.as_bytes());
    }

    fn value(&mut self, name: &str, code: u32, bytes: &[u8]) {
        Self::text(&mut self.values, name);
        self.values.extend(code.to_le_bytes());
        self.values.extend(bytes);
        self.values_count += 1;
    }

    pub(crate) fn int(&mut self, name: &str, value: u32) {
        self.value(name, 4, &value.to_le_bytes());
    }

    fn float(&mut self, name: &str, value: f32) {
        self.value(name, 6, &value.to_le_bytes());
    }

    pub(crate) fn say(&mut self, name: &str, value: &str) {
        let mut bytes = Vec::new();
        Self::text(&mut bytes, value);
        self.value(name, 8, &bytes);
    }

    fn texts(&mut self, name: &str, texts: &[String]) {
        let mut bytes = 8_u32.to_le_bytes().to_vec();
        bytes.extend((texts.len() as u64).to_le_bytes());
        texts.iter().for_each(|text| Self::text(&mut bytes, text));
        self.value(name, 9, &bytes);
    }

    fn ints(&mut self, name: &str, ints: &[i32]) {
        let mut bytes = 5_u32.to_le_bytes().to_vec();
        bytes.extend((ints.len() as u64).to_le_bytes());
        ints.iter().for_each(|int| bytes.extend(int.to_le_bytes()));
        self.value(name, 9, &bytes);
    }

    fn byte(&mut self) -> u8 {
        self.chance =
            self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 56) as u8
    }

    /// Random blocks with a scale that keeps the numbers small.
    pub(crate) fn tensor(&mut self, name: &str, sides: &[u64], code: u32) {
        Self::text(&mut self.tensors, name);
        self.tensors.extend((sides.len() as u32).to_le_bytes());
        sides.iter().for_each(|side| self.tensors.extend(side.to_le_bytes()));
        self.tensors.extend(code.to_le_bytes());
        while !self.bytes.len().is_multiple_of(32) {
            self.bytes.push(0);
        }
        self.tensors.extend((self.bytes.len() as u64).to_le_bytes());
        self.tensors_count += 1;
        let numbers: u64 = sides.iter().product();
        // The leading or trailing 16-bit scales of a block: 0x1C00 is 2⁻⁸, 0x9C00 is −2⁻⁸.
        let small = 0x1C00_u16.to_le_bytes();
        let (count, rest, head, tail): (u64, usize, Vec<u8>, Vec<u8>) = match code {
            0 => {
                for _ in 0..numbers {
                    let chance = f32::from(self.byte()) / 256.0;
                    let one = if name.contains("norm") { chance + 0.5 } else { (chance - 0.5) * 0.2 };
                    self.bytes.extend(one.to_le_bytes());
                }
                return;
            }
            2 => (numbers / 32, 16, small.to_vec(), vec![]),
            3 => (numbers / 32, 16, [small, 0x9C00_u16.to_le_bytes()].concat(), vec![]),
            6 => (numbers / 32, 20, small.to_vec(), vec![]),
            7 => (numbers / 32, 20, [small, 0x9C00_u16.to_le_bytes()].concat(), vec![]),
            8 => (numbers / 32, 32, 0x1000_u16.to_le_bytes().to_vec(), vec![]),
            12 => (numbers / 256, 140, [0x0800_u16.to_le_bytes(), 0x0800_u16.to_le_bytes()].concat(), vec![]),
            13 => (numbers / 256, 172, [0x0800_u16.to_le_bytes(), 0x0800_u16.to_le_bytes()].concat(), vec![]),
            14 => (numbers / 256, 208, vec![], 0x0200_u16.to_le_bytes().to_vec()),
            other => panic!("{other}"),
        };
        for _ in 0..count {
            self.bytes.extend(&head);
            for _ in 0..rest {
                let byte = self.byte();
                self.bytes.push(byte);
            }
            self.bytes.extend(&tail);
        }
    }

    pub(crate) fn file(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3_u32.to_le_bytes());
        file.extend(self.tensors_count.to_le_bytes());
        file.extend(self.values_count.to_le_bytes());
        file.extend(&self.values);
        file.extend(&self.tensors);
        while !file.len().is_multiple_of(32) {
            file.push(0);
        }
        file.extend(&self.bytes);
        file
    }
}

/// A complete file. Even seeds use one architecture, odd ones the other.
pub(crate) fn bytes(seed: u64) -> Vec<u8> {
    let mut making = Making { chance: seed.wrapping_mul(977).wrapping_add(13), ..Making::default() };
    let name = if seed.is_multiple_of(2) { "llama" } else { "qwen2" };
    making.say("general.architecture", name);
    let key = |rest: &str| format!("{name}.{rest}");
    making.int(&key("block_count"), 2);
    making.int(&key("context_length"), 1_024);
    making.int(&key("embedding_length"), WIDTH as u32);
    making.int(&key("feed_forward_length"), INNER as u32);
    making.int(&key("attention.head_count"), HEADS);
    making.int(&key("attention.head_count_kv"), KEY_HEADS);
    making.float(&key("attention.layer_norm_rms_epsilon"), 1e-6);
    making.float(&key("rope.freq_base"), 10_000.0);
    let words = vocabulary(&mut making, if seed.is_multiple_of(2) { "smollm" } else { "qwen2" });
    let keys = WIDTH / u64::from(HEADS) * u64::from(KEY_HEADS);
    making.tensor("token_embd.weight", &[WIDTH, words], 8);
    if seed.is_multiple_of(2) {
        making.tensor("output.weight", &[WIDTH, words], 2);
    }
    making.tensor("output_norm.weight", &[WIDTH], 0);
    for layer in 0..2 {
        let name = |rest: &str| format!("blk.{layer}.{rest}");
        making.tensor(&name("attn_norm.weight"), &[WIDTH], 0);
        making.tensor(&name("ffn_norm.weight"), &[WIDTH], 0);
        for (rest, rows, code) in [("attn_q", WIDTH, 6), ("attn_k", keys, 7), ("attn_v", keys, 3)] {
            making.tensor(&name(&format!("{rest}.weight")), &[WIDTH, rows], code);
            making.tensor(&name(&format!("{rest}.bias")), &[rows], 0);
        }
        making.tensor(&name("attn_output.weight"), &[WIDTH, WIDTH], 12);
        making.tensor(&name("ffn_gate.weight"), &[WIDTH, INNER], 13);
        making.tensor(&name("ffn_up.weight"), &[WIDTH, INNER], if layer == 0 { 0 } else { 2 });
        making.tensor(&name("ffn_down.weight"), &[INNER, WIDTH], 14);
    }
    making.file()
}

/// Every byte, some pairs, and the special tokens.
fn vocabulary(making: &mut Making, cut: &str) -> u64 {
    let mut beyond = 256_u32;
    let letters: Vec<String> = (0..=255_u8)
        .map(|byte| match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte).to_string(),
            _ => {
                beyond += 1;
                char::from_u32(beyond - 1).unwrap().to_string()
            }
        })
        .collect();
    let pairs = ["t h", "th e", "i n", "a r", "ar g", "\" :", "Ġ \"", "r e", "e r"];
    let special = ["<|im_start|>", "<|im_end|>", "<tool_call>"];
    let joined = pairs.iter().map(|pair| pair.replace(' ', ""));
    let tokens: Vec<String> = letters.into_iter().chain(joined).chain(special.map(str::to_owned)).collect();
    let kinds: Vec<i32> =
        tokens.iter().map(|token| if special.contains(&token.as_str()) { 3 } else { 1 }).collect();
    making.say("tokenizer.ggml.model", "gpt2");
    making.say("tokenizer.ggml.pre", cut);
    making.texts("tokenizer.ggml.tokens", &tokens);
    making.ints("tokenizer.ggml.token_type", &kinds);
    making.texts("tokenizer.ggml.merges", &pairs.map(str::to_owned));
    tokens.len() as u64
}

pub(crate) fn write(path: &Path, seed: u64) {
    std::fs::write(path, bytes(seed)).unwrap();
}
