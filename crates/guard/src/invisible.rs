//! The list of characters that a reviewer can't see, or that change how the surrounding text is displayed.
//!
//! It is the union of Unicode's `Default_Ignorable_Code_Point`, the bidirectional controls, the line and paragraph separators, the
//! interlinear annotation marks and the characters that render as blank but aren't white space (Hangul fillers, the empty Braille pattern).
//! Control characters (`char::is_control`) are a category of their own and not in this list.

/// Whether `c` is invisible or changes the direction of the surrounding text.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00AD}'                      // soft hyphen
        | '\u{034F}'                    // combining grapheme joiner
        | '\u{061C}'                    // Arabic letter mark
        | '\u{115F}'..='\u{1160}'       // Hangul fillers
        | '\u{17B4}'..='\u{17B5}'       // Khmer inherent vowels
        | '\u{180B}'..='\u{180F}'       // Mongolian variation selectors and vowel separator
        | '\u{200B}'..='\u{200F}'       // zero width, direction marks
        | '\u{2028}'..='\u{202E}'       // line and paragraph separators, embeddings and overrides
        | '\u{2060}'..='\u{206F}'       // word joiner, invisible operators, isolates, deprecated format characters
        | '\u{2800}'                    // Braille pattern blank
        | '\u{3164}'                    // Hangul filler
        | '\u{FE00}'..='\u{FE0F}'       // variation selectors
        | '\u{FEFF}'                    // byte order mark
        | '\u{FFA0}'                    // half-width Hangul filler
        | '\u{FFF0}'..='\u{FFFB}'       // unassigned ignorables, interlinear annotation
        | '\u{1BCA0}'..='\u{1BCA3}'     // shorthand format controls
        | '\u{1D173}'..='\u{1D17A}'     // musical format controls
        | '\u{E0000}'..='\u{E0FFF}'     // tags, variation selectors supplement
    )
}

/// The first invisible character of a text, if any.
pub fn first_invisible(text: &str) -> Option<char> {
    text.chars().find(|c| is_invisible(*c))
}
