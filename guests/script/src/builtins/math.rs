//! `Math`, without `Math.random`: a tool gives the same output for the same input.

use super::arg;
use crate::interp::{Eval, Interp};
use crate::native::{Member, Namespace};
use crate::number::{to_i32, to_u32};
use crate::value::Value;

pub(crate) static MATH: Namespace =
    Namespace { name: "Math", call: None, construct: None, member, methods: None };

macro_rules! of_one {
    ($run:expr) => {
        Member::Fn(|interp, _, args| {
            let number = interp.to_num(&arg(args, 0))?;
            let run: fn(f64) -> f64 = $run;
            Ok(Value::Num(run(number)))
        })
    };
}

fn member(name: &str) -> Option<Member> {
    Some(match name {
        "PI" => Member::Num(std::f64::consts::PI),
        "E" => Member::Num(std::f64::consts::E),
        "LN2" => Member::Num(std::f64::consts::LN_2),
        "LN10" => Member::Num(std::f64::consts::LN_10),
        "LOG2E" => Member::Num(std::f64::consts::LOG2_E),
        "LOG10E" => Member::Num(std::f64::consts::LOG10_E),
        "SQRT2" => Member::Num(std::f64::consts::SQRT_2),
        "SQRT1_2" => Member::Num(std::f64::consts::FRAC_1_SQRT_2),
        "abs" => of_one!(f64::abs),
        "floor" => of_one!(f64::floor),
        "ceil" => of_one!(f64::ceil),
        "round" => of_one!(|x| if x.fract().abs() == 0.5 { x.ceil() } else { x.round() }),
        "trunc" => of_one!(f64::trunc),
        "sign" => of_one!(|x| if x.is_nan() || x == 0.0 { x } else { x.signum() }),
        "sqrt" => of_one!(f64::sqrt),
        "cbrt" => of_one!(f64::cbrt),
        "exp" => of_one!(f64::exp),
        "expm1" => of_one!(f64::exp_m1),
        "log" => of_one!(f64::ln),
        "log2" => of_one!(f64::log2),
        "log10" => of_one!(f64::log10),
        "log1p" => of_one!(f64::ln_1p),
        "sin" => of_one!(f64::sin),
        "cos" => of_one!(f64::cos),
        "tan" => of_one!(f64::tan),
        "asin" => of_one!(f64::asin),
        "acos" => of_one!(f64::acos),
        "atan" => of_one!(f64::atan),
        "sinh" => of_one!(f64::sinh),
        "cosh" => of_one!(f64::cosh),
        "tanh" => of_one!(f64::tanh),
        "fround" => of_one!(|x| f64::from(x as f32)),
        "clz32" => of_one!(|x| f64::from(to_u32(x).leading_zeros())),
        "imul" => Member::Fn(|interp, _, args| {
            let (left, right) = (interp.to_num(&arg(args, 0))?, interp.to_num(&arg(args, 1))?);
            Ok(Value::Num(f64::from(to_i32(left).wrapping_mul(to_i32(right)))))
        }),
        "pow" => Member::Fn(|interp, _, args| {
            let (left, right) = (interp.to_num(&arg(args, 0))?, interp.to_num(&arg(args, 1))?);
            Ok(Value::Num(crate::operators::power(left, right)))
        }),
        "atan2" => Member::Fn(|interp, _, args| {
            let (left, right) = (interp.to_num(&arg(args, 0))?, interp.to_num(&arg(args, 1))?);
            Ok(Value::Num(left.atan2(right)))
        }),
        "hypot" => Member::Fn(|interp, _, args| {
            let mut sum = 0.0;
            for value in args {
                let number = interp.to_num(value)?;
                sum += number * number;
            }
            Ok(Value::Num(sum.sqrt()))
        }),
        "max" => Member::Fn(|interp, _, args| extreme(interp, args, f64::NEG_INFINITY, |a, b| a > b)),
        "min" => Member::Fn(|interp, _, args| extreme(interp, args, f64::INFINITY, |a, b| a < b)),
        "random" => Member::Fn(|interp, _, _| {
            Err(interp.type_error("Math.random is not there: the same input gives the same output"))
        }),
        _other => return None,
    })
}

fn extreme(interp: &mut Interp<'_>, args: &[Value], start: f64, better: fn(f64, f64) -> bool) -> Eval {
    let mut best = start;
    for value in args {
        let number = interp.to_num(value)?;
        if number.is_nan() || best.is_nan() {
            best = f64::NAN;
        } else if better(number, best) {
            best = number;
        }
    }
    Ok(Value::Num(best))
}
