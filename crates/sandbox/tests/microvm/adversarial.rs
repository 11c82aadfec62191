//! Hostile programs, by their numbers.
