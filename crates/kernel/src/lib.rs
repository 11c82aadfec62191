//! How does anything happen? One path: facts, verdict, intent, permit, effect, label, outcome.
