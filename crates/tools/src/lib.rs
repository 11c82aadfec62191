//! What can an agent do? The built-in tools.
