//! May it? Rule sets, loaders and one pure decision.
