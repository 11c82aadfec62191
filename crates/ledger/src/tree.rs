//! The RFC 6962 Merkle tree over the entries of a lane, and its proofs.
//!
//! Appending needs only the [`Frontier`]: the roots of the complete subtrees, at most 64. Proofs need the leaves, so they use a [`Tree`]
//! read back from disk.

use crate::Digest;

/// The right edge of a tree: enough to append to it and to compute its root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frontier {
    size: u64,
    /// Roots of complete subtrees, largest (leftmost) first: one per bit set in `size`.
    roots: Vec<Digest>,
}

impl Frontier {
    /// Rebuilds a frontier, if the number of roots matches the size.
    pub fn from_parts(size: u64, roots: Vec<Digest>) -> Option<Frontier> {
        (roots.len() == size.count_ones() as usize).then_some(Frontier { size, roots })
    }

    /// Number of leaves.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Roots of complete subtrees, largest first.
    pub fn roots(&self) -> &[Digest] {
        &self.roots
    }

    /// Adds a leaf.
    pub fn push(&mut self, leaf: Digest) {
        let mut node = leaf;
        // Each trailing one-bit of the old size completes a subtree.
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.roots.pop() {
                node = Digest::of_node(&left, &node);
            }
        }
        self.roots.push(node);
        self.size += 1;
    }

    /// The root of the tree.
    pub fn root(&self) -> Digest {
        let mut roots = self.roots.iter().rev();
        match roots.next() {
            None => Digest::compute(b""),
            Some(last) => roots.fold(*last, |right, left| Digest::of_node(left, &right)),
        }
    }
}

/// A complete tree, for proofs.
#[derive(Debug, Clone)]
pub struct Tree {
    /// `levels[k][i]` is the root of the complete subtree over the `2^k` leaves from `i * 2^k`.
    levels: Vec<Vec<Digest>>,
}

impl Tree {
    /// Builds the tree over these leaves.
    pub fn new(leaves: Vec<Digest>) -> Tree {
        let mut levels = vec![leaves];
        while let Some(last) = levels.last()
            && last.len() > 1
        {
            let next = last
                .chunks_exact(2)
                .filter_map(|pair| match pair {
                    [left, right] => Some(Digest::of_node(left, right)),
                    _ => None,
                })
                .collect();
            levels.push(next);
        }
        Tree { levels }
    }

    /// Number of leaves.
    pub fn size(&self) -> u64 {
        self.levels.first().map_or(0, |leaves| leaves.len() as u64)
    }

    /// The root over the first `size` leaves; `None` if there are fewer.
    pub fn root(&self, size: u64) -> Option<Digest> {
        if size == 0 { Some(Digest::compute(b"")) } else { self.range(0, size) }
    }

    /// Proves that leaf `index` is in the tree of the first `size` leaves.
    pub fn inclusion(&self, index: u64, size: u64) -> Option<Vec<Digest>> {
        if index >= size || size > self.size() {
            return None;
        }
        let mut proof = Vec::new();
        let (mut start, mut end) = (0, size);
        while end - start > 1 {
            let middle = start + split(end - start);
            if index < middle {
                proof.push(self.range(middle, end)?);
                end = middle;
            } else {
                proof.push(self.range(start, middle)?);
                start = middle;
            }
        }
        proof.reverse();
        Some(proof)
    }

    /// Proves that the tree of the first `old` leaves is a prefix of that of the first `new`.
    pub fn consistency(&self, old: u64, new: u64) -> Option<Vec<Digest>> {
        if old > new || new > self.size() {
            return None;
        }
        if old == 0 || old == new {
            return Some(Vec::new());
        }
        let mut proof = Vec::new();
        let (mut start, mut end) = (0, new);
        // The verifier knows the old root itself while the range still starts at 0.
        while old != end {
            let middle = start + split(end - start);
            if old <= middle {
                proof.push(self.range(middle, end)?);
                end = middle;
            } else {
                proof.push(self.range(start, middle)?);
                start = middle;
            }
        }
        if start != 0 {
            proof.push(self.range(start, end)?);
        }
        proof.reverse();
        Some(proof)
    }

    fn range(&self, start: u64, end: u64) -> Option<Digest> {
        let count = end.checked_sub(start)?;
        if count.is_power_of_two() {
            let level = self.levels.get(count.trailing_zeros() as usize)?;
            return level.get(usize::try_from(start / count).ok()?).copied();
        }
        let middle = start + split(count);
        Some(Digest::of_node(&self.range(start, middle)?, &self.range(middle, end)?))
    }
}

/// The largest power of two smaller than `count`, which is at least 2.
fn split(count: u64) -> u64 {
    1 << (u64::BITS - 1 - (count - 1).leading_zeros())
}

/// Whether `proof` shows `leaf` at `index` in the tree of `size` leaves with this root (RFC 9162, 2.1.3.2).
pub fn verify_inclusion(leaf: &Digest, index: u64, size: u64, proof: &[Digest], root: &Digest) -> bool {
    if index >= size {
        return false;
    }
    let (mut node_index, mut last, mut node) = (index, size - 1, *leaf);
    for sibling in proof {
        if last == 0 {
            return false;
        }
        if node_index & 1 == 1 || node_index == last {
            node = Digest::of_node(sibling, &node);
            while node_index & 1 == 0 && node_index != 0 {
                node_index >>= 1;
                last >>= 1;
            }
        } else {
            node = Digest::of_node(&node, sibling);
        }
        node_index >>= 1;
        last >>= 1;
    }
    last == 0 && node == *root
}

/// Two tree heads and the proof that the first is a prefix of the second.
#[derive(Debug, Clone, Copy)]
pub struct Consistency<'a> {
    /// Size and root of the earlier tree.
    pub old: (u64, Digest),
    /// Size and root of the later tree.
    pub new: (u64, Digest),
    /// The proof.
    pub proof: &'a [Digest],
}

impl Consistency<'_> {
    /// Whether the proof is valid (RFC 9162, 2.1.4.2).
    pub fn holds(&self) -> bool {
        let ((old_size, old_root), (new_size, new_root)) = (self.old, self.new);
        if old_size > new_size {
            return false;
        }
        if old_size == new_size {
            return self.proof.is_empty() && old_root == new_root;
        }
        if old_size == 0 {
            return self.proof.is_empty() && old_root == Digest::compute(b"");
        }
        let mut steps = self.proof.iter();
        let first = if old_size.is_power_of_two() { Some(&old_root) } else { steps.next() };
        let Some(first) = first else { return false };
        let (mut node_index, mut last) = (old_size - 1, new_size - 1);
        while node_index & 1 == 1 {
            node_index >>= 1;
            last >>= 1;
        }
        let (mut old_node, mut new_node) = (*first, *first);
        for step in steps {
            if last == 0 {
                return false;
            }
            if node_index & 1 == 1 || node_index == last {
                old_node = Digest::of_node(step, &old_node);
                new_node = Digest::of_node(step, &new_node);
                while node_index & 1 == 0 && node_index != 0 {
                    node_index >>= 1;
                    last >>= 1;
                }
            } else {
                new_node = Digest::of_node(&new_node, step);
            }
            node_index >>= 1;
            last >>= 1;
        }
        last == 0 && old_node == old_root && new_node == new_root
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 6962, 2.1, transcribed literally.
    fn naive_root(leaves: &[Digest]) -> Digest {
        match leaves {
            [] => Digest::compute(b""),
            [leaf] => *leaf,
            _ => {
                let k = leaves.len().next_power_of_two() / 2;
                Digest::of_node(&naive_root(&leaves[..k]), &naive_root(&leaves[k..]))
            }
        }
    }

    /// RFC 6962, 2.1.1, transcribed literally.
    fn naive_path(m: usize, leaves: &[Digest]) -> Vec<Digest> {
        if leaves.len() <= 1 {
            return Vec::new();
        }
        let k = leaves.len().next_power_of_two() / 2;
        let (mut path, last) = if m < k {
            (naive_path(m, &leaves[..k]), naive_root(&leaves[k..]))
        } else {
            (naive_path(m - k, &leaves[k..]), naive_root(&leaves[..k]))
        };
        path.push(last);
        path
    }

    /// RFC 6962, 2.1.2, transcribed literally.
    fn naive_subproof(m: usize, leaves: &[Digest], whole: bool) -> Vec<Digest> {
        if m == leaves.len() {
            return if whole { Vec::new() } else { vec![naive_root(leaves)] };
        }
        let k = leaves.len().next_power_of_two() / 2;
        let (mut proof, last) = if m <= k {
            (naive_subproof(m, &leaves[..k], whole), naive_root(&leaves[k..]))
        } else {
            (naive_subproof(m - k, &leaves[k..], false), naive_root(&leaves[..k]))
        };
        proof.push(last);
        proof
    }

    fn leaves(count: usize) -> Vec<Digest> {
        (0..count).map(|i| Digest::of_leaf(&i.to_be_bytes())).collect()
    }

    fn agree(size: usize) {
        let leaves = leaves(size);
        let tree = Tree::new(leaves.clone());
        let mut frontier = Frontier::default();
        leaves.iter().for_each(|leaf| frontier.push(*leaf));
        let root = naive_root(&leaves);
        assert_eq!(frontier.root(), root);
        assert_eq!(tree.root(size as u64), Some(root));
        assert_eq!(Frontier::from_parts(size as u64, frontier.roots().to_vec()), Some(frontier));
        for (index, leaf) in leaves.iter().enumerate() {
            let proof = tree.inclusion(index as u64, size as u64).unwrap();
            assert_eq!(proof, naive_path(index, &leaves));
            assert!(verify_inclusion(leaf, index as u64, size as u64, &proof, &root));
            assert!(!verify_inclusion(leaf, index as u64 + 1, size as u64, &proof, &root));
        }
    }

    #[test]
    fn adv_093_roots_and_inclusion_agree_with_the_rfc_at_edge_sizes() {
        for size in [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65] {
            agree(size);
        }
    }

    #[test]
    fn adv_093_consistency_agrees_with_the_rfc_at_all_small_sizes() {
        let all = leaves(70);
        let tree = Tree::new(all.clone());
        for new in 0..=70usize {
            for old in 0..=new {
                let proof = tree.consistency(old as u64, new as u64).unwrap();
                if old > 0 {
                    assert_eq!(proof, naive_subproof(old, &all[..new], true), "{old} {new}");
                }
                let heads = Consistency {
                    old: (old as u64, naive_root(&all[..old])),
                    new: (new as u64, naive_root(&all[..new])),
                    proof: &proof,
                };
                assert!(heads.holds(), "{old} {new}");
                if old != new {
                    let swapped = Consistency { old: heads.new, new: heads.old, proof: &proof };
                    assert!(!swapped.holds());
                    let forged = Consistency { new: (heads.new.0, Digest::compute(b"forged")), ..heads };
                    assert!(old == 0 || !forged.holds());
                }
            }
        }
    }

    /// A million of them in a release build; a debug build does the first thousand.
    #[test]
    fn adv_093_a_million_random_trees_agree_with_the_rfc() {
        let trees = if cfg!(debug_assertions) { 1_000 } else { 1_000_000 };
        let all = leaves(80);
        let tree = Tree::new(all.clone());
        let mut random = 88_172_645_463_325_252_u64;
        for _ in 0..trees {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let new = usize::try_from(random % 80).unwrap() + 1;
            let old = usize::try_from((random >> 16) % 81).unwrap() % (new + 1);
            let index = usize::try_from((random >> 32) % 80).unwrap() % new;
            let root = naive_root(&all[..new]);
            assert_eq!(tree.root(new as u64), Some(root));
            let path = tree.inclusion(index as u64, new as u64).unwrap();
            assert_eq!(path, naive_path(index, &all[..new]));
            assert!(verify_inclusion(&all[index], index as u64, new as u64, &path, &root));
            let proof = tree.consistency(old as u64, new as u64).unwrap();
            let old_head = (old as u64, naive_root(&all[..old]));
            assert!(Consistency { old: old_head, new: (new as u64, root), proof: &proof }.holds());
        }
    }

    #[test]
    fn known_roots_of_the_certificate_transparency_test_tree() {
        let inputs: [&[u8]; 4] = [b"", b"\x00", b"\x10", b"\x20\x21"];
        let mut frontier = Frontier::default();
        let mut roots = vec![frontier.root().to_string()];
        for input in inputs {
            frontier.push(Digest::of_leaf(input));
            roots.push(frontier.root().to_string());
        }
        assert_eq!(
            roots,
            [
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
                "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
                "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ]
        );
    }

    proptest! {
        #[test]
        fn adv_093_random_trees_prove_only_what_is_so(
            size in 1u64..2000, index in 0u64..2000, old in 0u64..2000, flip in 0usize..64,
        ) {
            let index = index % size;
            let old = old % (size + 1);
            let leaves = leaves(usize::try_from(size).unwrap());
            let tree = Tree::new(leaves.clone());
            let root = tree.root(size).unwrap();
            let leaf = leaves[usize::try_from(index).unwrap()];
            let mut proof = tree.inclusion(index, size).unwrap();
            prop_assert!(verify_inclusion(&leaf, index, size, &proof, &root));
            let mut steps = tree.consistency(old, size).unwrap();
            let old_root = tree.root(old).unwrap();
            let holds = |proof: &[Digest]| Consistency { old: (old, old_root), new: (size, root), proof }.holds();
            prop_assert!(holds(&steps));
            if !proof.is_empty() {
                let at = flip % proof.len();
                proof[at] = Digest::compute(b"wrong");
                prop_assert!(!verify_inclusion(&leaf, index, size, &proof, &root));
            }
            if !steps.is_empty() {
                let at = flip % steps.len();
                steps[at] = Digest::compute(b"wrong");
                prop_assert!(!holds(&steps));
            }
        }
    }
}
