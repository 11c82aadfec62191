//! The tiers are the kernel's.

use regent_kernel::tier;

enum Anywhere {}

impl tier::Tier for Anywhere {}

fn main() {}
