//! Where a text may be cut. A value that was revealed is recognised as a whole only, so a cut must not go through one: what is left of it
//! would pass unmasked.

use std::ops::Range;

/// So much on either side of a cut is looked at. A value is masked in longer forms than its own: escaped, each byte takes three.
pub(crate) const SEAM_BYTES: usize = 3 * regent_kernel::SECRET_BYTES_MAX;
/// Whether a value goes across this place.
pub(crate) fn is_within_secret(window: &[u8], at: usize, scrub: impl Fn(&mut Vec<u8>) -> bool) -> bool {
    let seam = at.saturating_sub(SEAM_BYTES)..at.saturating_add(SEAM_BYTES).min(window.len());
    let mut joined = window.get(seam.clone()).unwrap_or_default().to_vec();
    if !scrub(&mut joined) {
        return false;
    }
    let mut apart = window.get(seam.start..at).unwrap_or_default().to_vec();
    let mut after = window.get(at..seam.end).unwrap_or_default().to_vec();
    scrub(&mut apart);
    scrub(&mut after);
    apart.append(&mut after);
    apart != joined
}

/// The end of this piece, or a place before it that no value goes across and no character. There is none if the piece begins within one.
pub(crate) fn cut_outside_secrets(
    window: &[u8],
    piece: Range<usize>,
    scrub: impl Fn(&mut Vec<u8>) -> bool,
) -> Option<usize> {
    let is_within = |at: usize| is_within_secret(window, at, &scrub);
    let (mut outside, mut within, mut step) = (piece.end, piece.end, 1_usize);
    while is_within(outside) {
        within = outside;
        outside = outside.saturating_sub(step).max(piece.start.saturating_add(1));
        step = step.saturating_mul(2);
        if outside >= within {
            return None;
        }
    }
    // As much as there is before the value.
    while within.saturating_sub(outside) > 1 {
        let middle = outside.midpoint(within);
        if is_within(middle) {
            within = middle;
        } else {
            outside = middle;
        }
    }
    if outside == piece.end {
        return Some(outside);
    }
    let at = whole_characters(window, piece.start..outside);
    (at == outside || !is_within(at)).then_some(at)
}

/// The end of this piece, or of its last whole character if it would be text otherwise.
pub(crate) fn whole_characters(window: &[u8], piece: Range<usize>) -> usize {
    match std::str::from_utf8(window.get(piece.clone()).unwrap_or_default()) {
        Err(error) if error.error_len().is_none() => piece.start.saturating_add(error.valid_up_to()),
        Ok(_) | Err(_) => piece.end,
    }
}
