//! The schemas in `docs/schemas`, against values that really travel.

#[cfg(test)]
mod published;
