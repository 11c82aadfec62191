//! Wraps a module as a component: `regent-script-pack MODULE COMPONENT`. Run by `cargo xtask guest`.

#![forbid(unsafe_code)]

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut paths = std::env::args_os().skip(1);
    let (Some(module), Some(component)) = (paths.next(), paths.next()) else {
        return Err("which module, and where to?".into());
    };
    let module = std::fs::read(module)?;
    let encoded = wit_component::ComponentEncoder::default().module(&module)?.validate(true).encode()?;
    Ok(std::fs::write(component, encoded)?)
}
