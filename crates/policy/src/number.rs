//! Exact comparison of JSON numbers: 2^53 + 1 is not 2^53, and 1.0 equals 1.

use std::cmp::Ordering;

use serde_json::Number;

/// Every float at or above this is an integer. An `i128` holds such floats exactly up to 1e30, and no JSON integer exceeds 2^100.
const INTEGRAL_MAX: f64 = 1.0e30;

/// A JSON number without loss.
#[derive(Debug, Clone, Copy)]
enum Exact {
    Whole(i128),
    Float(f64),
}

fn exact(number: &Number) -> Exact {
    if let Some(whole) = number.as_i64() {
        return Exact::Whole(i128::from(whole));
    }
    if let Some(whole) = number.as_u64() {
        return Exact::Whole(i128::from(whole));
    }
    exact_f64(number.as_f64().unwrap_or(f64::INFINITY))
}

#[expect(clippy::cast_possible_truncation, reason = "integral and below 1e30, so an i128 holds it exactly")]
fn exact_f64(float: f64) -> Exact {
    if float.fract() == 0.0 && float.abs() < INTEGRAL_MAX {
        Exact::Whole(float as i128)
    } else {
        Exact::Float(float)
    }
}

/// Compares by value, whatever the spelling. JSON has no NaN, so this is a total order.
pub(crate) fn compare(left: &Number, right: &Number) -> Ordering {
    match (exact(left), exact(right)) {
        (Exact::Whole(left), Exact::Whole(right)) => left.cmp(&right),
        (Exact::Float(left), Exact::Float(right)) => left.total_cmp(&right),
        (Exact::Whole(left), Exact::Float(right)) => whole_to_float(left, right),
        (Exact::Float(left), Exact::Whole(right)) => whole_to_float(right, left).reverse(),
    }
}

/// The float has a fraction or exceeds every integer here, so rounding the integer down can't change the order.
#[expect(clippy::cast_possible_truncation, reason = "the floor is below 1e30, or the sign alone decides")]
fn whole_to_float(whole: i128, float: f64) -> Ordering {
    if float.abs() >= INTEGRAL_MAX {
        return if float > 0.0 { Ordering::Less } else { Ordering::Greater };
    }
    if whole <= float.floor() as i128 { Ordering::Less } else { Ordering::Greater }
}

/// A hash key: equal numbers have equal keys.
pub(crate) fn key(number: &Number) -> u64 {
    match exact(number) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a key, not a number: folding is wanted"
        )]
        Exact::Whole(whole) => (whole ^ (whole >> 64)) as u64,
        Exact::Float(float) => float.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn adv_007_numbers_compare_by_value_beyond_2_to_the_53() {
        let cases = [
            ("1", "1.0", Ordering::Equal),
            ("0", "-0.0", Ordering::Equal),
            ("9007199254740993", "9007199254740992.0", Ordering::Greater),
            ("9007199254740993", "9007199254740992", Ordering::Greater),
            ("18446744073709551615", "-1", Ordering::Greater),
            ("18446744073709551615", "1e300", Ordering::Less),
            ("-3", "-2.5", Ordering::Less),
            ("-2", "-2.5", Ordering::Greater),
            ("2", "2.5", Ordering::Less),
            ("3", "2.5", Ordering::Greater),
            ("-1e300", "0", Ordering::Less),
            ("0.1", "0.2", Ordering::Less),
        ];
        for (left, right, order) in cases {
            let (a, b): (Number, Number) =
                (serde_json::from_str(left).unwrap(), serde_json::from_str(right).unwrap());
            assert_eq!(compare(&a, &b), order, "{left} with {right}");
            assert_eq!(compare(&b, &a), order.reverse(), "{right} with {left}");
            assert_eq!(order.is_eq(), key(&a) == key(&b), "keys of {left} and {right}");
        }
        assert!(json!(1).is_number());
    }
}
