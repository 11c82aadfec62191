//! The network: computes the scores of the next token. Supports two similar architectures, `llama` and `qwen2`.
//!
//! Several conversations are evaluated together: each weight is loaded once for all of them.

use rayon::prelude::*;

use super::batch::REMEMBERED_BYTES;
use super::dot::{Quantised, along, multiply};
use super::gguf::{Gguf, GgufError};
use super::packed::{Packed, PackedRows, read_row};

/// Maximum layers, width and vocabulary.
const LAYERS_MAX: usize = 256;
const WIDTH_MAX: usize = 65_536;
const HEADS_MAX: usize = 1_024;
const WORDS_MAX: usize = 1 << 20;
const CONTEXT_MAX: usize = 1 << 20;

/// The dimensions of a network.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NetShape {
    layers: usize,
    width: usize,
    inner: usize,
    heads: usize,
    key_heads: usize,
    head: usize,
    pub(super) words: usize,
    /// Maximum tokens of a conversation.
    pub(super) context: usize,
    turn_base: f32,
    epsilon: f32,
    turn: RotaryLayout,
    has_bias: bool,
}

/// Which numbers of a head rotary embedding rotates together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RotaryLayout {
    /// Adjacent numbers.
    Pairs,
    /// One number of each half.
    Halves,
}

impl NetShape {
    fn read(gguf: &Gguf) -> Result<Self, GgufError> {
        let name =
            gguf.text("general.architecture").ok_or_else(|| GgufError::Missing("architecture".to_owned()))?;
        let (turn, has_bias) = match name {
            "llama" => (RotaryLayout::Pairs, false),
            "qwen2" => (RotaryLayout::Halves, true),
            other => {
                return Err(GgufError::Unsupported(format!("the architecture `{}`", other.escape_debug())));
            }
        };
        let key = |rest: &str| format!("{name}.{rest}");
        let count = |rest: &str, most| gguf.count(&key(rest), most);
        let (width, heads) =
            (count("embedding_length", WIDTH_MAX)?, count("attention.head_count", HEADS_MAX)?);
        let key_heads = count("attention.head_count_kv", HEADS_MAX).unwrap_or(heads);
        let malformed = |why: &str| Err(GgufError::Malformed(why.to_owned()));
        if heads == 0
            || key_heads == 0
            || !heads.is_multiple_of(key_heads)
            || !width.is_multiple_of(heads * 2)
        {
            return malformed("the heads don't fit the width");
        }
        let head = width / heads;
        let scaled = gguf.text(&key("rope.scaling.type")).is_some_and(|kind| kind != "none");
        if scaled
            || gguf.has_tensor("rope_freqs.weight")
            || count("rope.dimension_count", head).is_ok_and(|some| some != head)
        {
            return Err(GgufError::Unsupported("positions that are scaled".to_owned()));
        }
        let shape = Self {
            layers: count("block_count", LAYERS_MAX)?,
            width,
            inner: count("feed_forward_length", WIDTH_MAX * 4)?,
            heads,
            key_heads,
            head,
            words: gguf.tensor("token_embd.weight")?.rows.min(WORDS_MAX),
            context: count("context_length", CONTEXT_MAX)?,
            turn_base: gguf.number(&key("rope.freq_base")).unwrap_or(10_000.0),
            epsilon: gguf.number(&key("attention.layer_norm_rms_epsilon"))?,
            turn,
            has_bias,
        };
        if shape.layers == 0 || shape.context == 0 || shape.turn_base <= 0.0 || shape.epsilon < 0.0 {
            return malformed("a size is zero");
        }
        Ok(shape)
    }

    fn key_width(&self) -> usize {
        self.key_heads * self.head
    }

    fn token_bytes(&self) -> usize {
        self.layers * self.key_width() * 2 * size_of::<f32>()
    }

    /// How many tokens a conversation may have: as many as the weights were made for, and as fit into the cache.
    pub(super) fn window(&self) -> usize {
        self.context.min(REMEMBERED_BYTES / self.token_bytes().max(1))
    }
}

/// The window of weights whose header is read.
pub(super) fn window(gguf: &Gguf) -> Result<usize, GgufError> {
    NetShape::read(gguf).map(|shape| shape.window())
}

#[derive(Debug)]
struct NetLayer {
    at: usize,
    attention_norm: Vec<f32>,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Packed,
    inner_norm: Vec<f32>,
    gate: Packed,
    up: Packed,
    down: Packed,
}

#[derive(Debug)]
struct Linear {
    weight: Packed,
    bias: Option<Vec<f32>>,
}

impl Linear {
    fn read(gguf: &Gguf, name: &str, rows: usize, shape: &NetShape) -> Result<Self, GgufError> {
        let weight = Packed::read(gguf, &format!("{name}.weight"), rows, shape.width)?;
        let bias = shape.has_bias.then(|| read_row(gguf, &format!("{name}.bias"), rows)).transpose()?;
        Ok(Self { weight, bias })
    }

    fn run(&self, vectors: &Quantised, turned: &mut Vec<f32>, out: &mut Vec<f32>) {
        multiply(&self.weight, vectors, turned, out);
        if let Some(bias) = &self.bias {
            for out in out.chunks_exact_mut(bias.len()) {
                out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
            }
        }
    }
}

impl NetLayer {
    fn read(gguf: &Gguf, at: usize, shape: &NetShape) -> Result<Self, GgufError> {
        let name = |rest: &str| format!("blk.{at}.{rest}");
        let (width, inner) = (shape.width, shape.inner);
        let matrix = |rest: &str, rows, cols| Packed::read(gguf, &name(rest), rows, cols);
        Ok(Self {
            at,
            attention_norm: read_row(gguf, &name("attn_norm.weight"), width)?,
            query: Linear::read(gguf, &name("attn_q"), width, shape)?,
            key: Linear::read(gguf, &name("attn_k"), shape.key_width(), shape)?,
            value: Linear::read(gguf, &name("attn_v"), shape.key_width(), shape)?,
            output: matrix("attn_output.weight", width, width)?,
            inner_norm: read_row(gguf, &name("ffn_norm.weight"), width)?,
            gate: matrix("ffn_gate.weight", inner, width)?,
            up: matrix("ffn_up.weight", inner, width)?,
            down: matrix("ffn_down.weight", width, inner)?,
        })
    }
}

/// Weights, loaded once and never changed.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) shape: NetShape,
    words: Embeddings,
    layers: Vec<NetLayer>,
    norm: Vec<f32>,
}

/// Input and output embeddings.
#[derive(Debug)]
enum Embeddings {
    Same(Packed),
    Apart { going_in: PackedRows, coming_out: Packed },
}

impl Embeddings {
    fn out(&self) -> &Packed {
        match self {
            Self::Same(both) => both,
            Self::Apart { coming_out, .. } => coming_out,
        }
    }

    fn row(&self, word: usize, into: &mut [f32]) {
        match self {
            Self::Same(both) => both.row(word, into),
            Self::Apart { going_in, .. } => going_in.row(word, into),
        }
    }
}

/// The attention cache of a conversation.
#[derive(Debug, Default)]
pub(super) struct KvMemory {
    /// The cached tokens.
    tokens: Vec<u32>,
    layers: Vec<RememberedPrompt>,
}

#[derive(Debug, Default)]
struct RememberedPrompt {
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl KvMemory {
    /// The cached tokens.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// A copy of the first `tokens` tokens, for another conversation with the same prefix.
    pub(super) fn beginning(&self, tokens: usize) -> Self {
        let tokens = tokens.min(self.tokens.len());
        let part = |all: &[f32]| {
            let width = all.len() / self.tokens.len().max(1);
            all.get(..tokens * width).unwrap_or_default().to_vec()
        };
        let layer = |layer: &RememberedPrompt| RememberedPrompt {
            keys: part(&layer.keys),
            values: part(&layer.values),
        };
        Self {
            tokens: self.tokens.get(..tokens).unwrap_or_default().to_vec(),
            layers: self.layers.iter().map(layer).collect(),
        }
    }

    /// Drops all tokens after the first `tokens`.
    pub(super) fn truncate(&mut self, tokens: usize) {
        let had = self.tokens.len();
        if tokens >= had {
            return;
        }
        for layer in &mut self.layers {
            let width = layer.keys.len() / had;
            layer.keys.truncate(tokens * width);
            layer.values.truncate(tokens * width);
        }
        self.tokens.truncate(tokens);
    }
}

/// One conversation's part of a step.
#[derive(Debug)]
pub(super) struct Feed<'a> {
    /// Its cache, which grows by the new tokens.
    pub(super) memory: &'a mut KvMemory,
    /// The new tokens.
    pub(super) tokens: &'a [u32],
    /// Whether the scores of the next token are needed.
    pub(super) wants_next: bool,
}

/// Scratch buffers, reused from step to step.
#[derive(Debug, Default)]
pub(super) struct NetScratch {
    quantised: Quantised,
    turned: Vec<f32>,
    normed: Vec<f32>,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    mixed: Vec<f32>,
    gate: Vec<f32>,
}

impl Net {
    /// Loads the weights.
    pub(super) fn read(gguf: &Gguf) -> Result<Self, GgufError> {
        let shape = NetShape::read(gguf)?;
        let (rows, cols) = (shape.words, shape.width);
        let words = if gguf.has_tensor("output.weight") {
            let going_in = PackedRows::read(gguf, "token_embd.weight", rows, cols)?;
            Embeddings::Apart { going_in, coming_out: Packed::read(gguf, "output.weight", rows, cols)? }
        } else {
            Embeddings::Same(Packed::read(gguf, "token_embd.weight", rows, cols)?)
        };
        let layers =
            (0..shape.layers).map(|at| NetLayer::read(gguf, at, &shape)).collect::<Result<_, _>>()?;
        let norm = read_row(gguf, "output_norm.weight", cols)?;
        Ok(Self { shape, words, layers, norm })
    }

    /// Cache bytes per token.
    pub(super) fn token_bytes(&self) -> usize {
        self.shape.token_bytes()
    }

    /// One step of all feeds. Returns the scores for those that need them, in order.
    pub(super) fn step(&self, room: &mut NetScratch, feeds: &mut [Feed<'_>]) -> Vec<Vec<f32>> {
        let places: Vec<TokenSlot> = places(feeds);
        let width = self.shape.width;
        let mut stream = vec![0.0; places.len() * width];
        for (place, into) in places.iter().zip(stream.chunks_exact_mut(width)) {
            self.words.row(place.word, into);
        }
        for feed in feeds.iter_mut() {
            feed.memory.layers.resize_with(self.layers.len(), RememberedPrompt::default);
            feed.memory.tokens.extend_from_slice(feed.tokens);
        }
        for layer in &self.layers {
            self.attend(layer, room, feeds, &places, &mut stream);
            self.think(layer, room, &mut stream);
        }
        let mut last = Vec::new();
        for (place, vector) in places.iter().zip(stream.chunks_exact(width)) {
            if place.is_wanted {
                last.extend_from_slice(vector);
            }
        }
        norm(&last, &self.norm, self.shape.epsilon, &mut room.normed);
        room.quantised.set(&room.normed, width);
        let mut next = Vec::new();
        multiply(self.words.out(), &room.quantised, &mut room.turned, &mut next);
        next.chunks_exact(self.shape.words).map(<[f32]>::to_vec).collect()
    }

    /// Attention of one layer.
    fn attend(
        &self,
        layer: &NetLayer,
        room: &mut NetScratch,
        feeds: &mut [Feed<'_>],
        places: &[TokenSlot],
        stream: &mut [f32],
    ) {
        let NetScratch { quantised, turned, normed, query, key, value, mixed, .. } = room;
        let shape = &self.shape;
        let (head, key_width) = (shape.head, shape.key_width());
        norm(stream, &layer.attention_norm, shape.epsilon, normed);
        quantised.set(normed, shape.width);
        layer.query.run(quantised, turned, query);
        layer.key.run(quantised, turned, key);
        layer.value.run(quantised, turned, value);
        let tokens =
            places.iter().zip(query.chunks_exact_mut(shape.width)).zip(key.chunks_exact_mut(key_width));
        for (((place, query), key), value) in tokens.zip(value.chunks_exact(key_width)) {
            turn_by(place.position, shape, query);
            turn_by(place.position, shape, key);
            if let Some(memory) =
                feeds.get_mut(place.feed).and_then(|feed| feed.memory.layers.get_mut(layer.at))
            {
                memory.keys.extend_from_slice(key);
                memory.values.extend_from_slice(value);
            }
        }
        mixed.clear();
        mixed.resize(query.len(), 0.0);
        let group = shape.heads / shape.key_heads * head;
        let feeds = &*feeds;
        let each = |(number, (query, out)): (usize, (&[f32], &mut [f32]))| {
            let (token, key_head) = (number / shape.key_heads, number % shape.key_heads);
            let Some(place) = places.get(token) else { return };
            if let Some(memory) = feeds.get(place.feed).and_then(|feed| feed.memory.layers.get(layer.at)) {
                let past =
                    Past { memory, from: key_head * head, head, stride: key_width, upto: place.position + 1 };
                pulp::Arch::new().dispatch(
                    #[inline(always)]
                    || past.mix(query, out),
                );
            }
        };
        if rayon::current_num_threads() <= 1 {
            query.chunks_exact(group).zip(mixed.chunks_exact_mut(group)).enumerate().for_each(each);
        } else {
            query.par_chunks_exact(group).zip(mixed.par_chunks_exact_mut(group)).enumerate().for_each(each);
        }
        quantised.set(mixed, shape.width);
        multiply(&layer.output, quantised, turned, normed);
        add(stream, normed);
    }

    /// The feed-forward part of one layer.
    fn think(&self, layer: &NetLayer, room: &mut NetScratch, stream: &mut [f32]) {
        let NetScratch { quantised, turned, normed, query: up, gate, .. } = room;
        norm(stream, &layer.inner_norm, self.shape.epsilon, normed);
        quantised.set(normed, self.shape.width);
        multiply(&layer.gate, quantised, turned, gate);
        multiply(&layer.up, quantised, turned, up);
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                for (gate, up) in gate.iter_mut().zip(up.iter()) {
                    *gate = *gate / (1.0 + exp(-*gate)) * up;
                }
            },
        );
        quantised.set(gate, self.shape.inner);
        multiply(&layer.down, quantised, turned, normed);
        add(stream, normed);
    }
}

/// The conversation and position of a token in a step.
#[derive(Debug)]
struct TokenSlot {
    feed: usize,
    position: usize,
    word: usize,
    is_wanted: bool,
}

fn places(feeds: &[Feed<'_>]) -> Vec<TokenSlot> {
    let mut places = Vec::new();
    for (feed, one) in feeds.iter().enumerate() {
        let before = one.memory.tokens.len();
        for (at, token) in one.tokens.iter().enumerate() {
            let is_wanted = one.wants_next && at + 1 == one.tokens.len();
            places.push(TokenSlot { feed, position: before + at, word: *token as usize, is_wanted });
        }
    }
    places
}

/// The cached keys and values of one head, up to a token.
struct Past<'a> {
    memory: &'a RememberedPrompt,
    from: usize,
    head: usize,
    stride: usize,
    upto: usize,
}

impl Past<'_> {
    /// For each query head, the attention-weighted values.
    #[inline(always)]
    fn mix(&self, query: &[f32], out: &mut [f32]) {
        let Self { memory, from, head, stride, upto } = *self;
        let scale = 1.0 / (head as f32).sqrt();
        let mut found = vec![0_f32; upto];
        for (query, out) in query.chunks_exact(head).zip(out.chunks_exact_mut(head)) {
            let mut most = f32::NEG_INFINITY;
            for (found, key) in found.iter_mut().zip(memory.keys.chunks_exact(stride)) {
                if let Some(key) = key.get(from..from + head) {
                    *found = along(query, key) * scale;
                    most = most.max(*found);
                }
            }
            for found in &mut found {
                *found = exp(*found - most);
            }
            let mut total = 0.0;
            for (found, value) in found.iter().zip(memory.values.chunks_exact(stride)) {
                total += found;
                if let Some(value) = value.get(from..from + head) {
                    for (out, value) in out.iter_mut().zip(value) {
                        *out += found * value;
                    }
                }
            }
            let share = 1.0 / total;
            for out in out {
                *out *= share;
            }
        }
    }
}

fn norm(stream: &[f32], weight: &[f32], epsilon: f32, into: &mut Vec<f32>) {
    into.clear();
    for vector in stream.chunks_exact(weight.len().max(1)) {
        let mean = along(vector, vector) / weight.len() as f32;
        let scale = 1.0 / (mean + epsilon).sqrt();
        into.extend(vector.iter().zip(weight).map(|(one, weight)| one * scale * weight));
    }
}

fn add(stream: &mut [f32], more: &[f32]) {
    stream.iter_mut().zip(more).for_each(|(to, from)| *to += from);
}

/// Rotates each head by its position.
fn turn_by(position: usize, shape: &NetShape, vector: &mut [f32]) {
    let half = shape.head / 2;
    let turns: Vec<(f32, f32)> = (0..half)
        .map(|at| {
            let speed = shape.turn_base.powf(-2.0 * at as f32 / shape.head as f32);
            (position as f32 * speed).sin_cos()
        })
        .collect();
    for head in vector.chunks_exact_mut(shape.head) {
        let turned = |x: &mut f32, y: &mut f32, (sin, cos): (f32, f32)| {
            (*x, *y) = (*x * cos - *y * sin, *x * sin + *y * cos);
        };
        match shape.turn {
            RotaryLayout::Pairs => {
                for (pair, turn) in head.as_chunks_mut().0.iter_mut().zip(&turns) {
                    let [x, y] = pair;
                    turned(x, y, *turn);
                }
            }
            RotaryLayout::Halves => {
                let (first, second) = head.split_at_mut(half);
                first.iter_mut().zip(second).zip(&turns).for_each(|((x, y), turn)| turned(x, y, *turn));
            }
        }
    }
}

/// eˣ to about seven digits, without branches, so that it vectorizes.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let power = x.clamp(-87.0, 88.0) * std::f32::consts::LOG2_E;
    // Adding and subtracting 1.5 × 2²³ rounds to an integer without a call.
    let whole = (power + 12_582_912.0) - 12_582_912.0;
    let rest = (power - whole) * std::f32::consts::LN_2;
    let series = 1.0
        + rest
            * (1.0
                + rest
                    * (1.0 / 2.0
                        + rest * (1.0 / 6.0 + rest * (1.0 / 24.0 + rest * (1.0 / 120.0 + rest / 720.0)))));
    // The clamp keeps it between −126 and 127.
    let exponent = (whole as i32 + 127) << 23;
    series * f32::from_bits(exponent.cast_unsigned())
}
