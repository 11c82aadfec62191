//! The program that `torture` kills: see `regent_testkit::torture::child`.

use regent_testkit::torture::Broken;
use regent_testkit::torture::child::{Orders, obey};

fn main() -> Result<(), Broken> {
    obey(&Orders::parse(std::env::args().skip(1))?)
}
