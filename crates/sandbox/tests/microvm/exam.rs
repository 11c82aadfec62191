//! The microVM tier takes the exam that every tier takes.
