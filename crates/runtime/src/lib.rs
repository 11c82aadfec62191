//! Who does the work?
