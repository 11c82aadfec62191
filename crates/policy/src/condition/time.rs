//! Time windows: weekdays, start, end, and an offset from UTC.

/// Minutes of a day.
pub(crate) const DAY_MINUTES: u16 = 24 * 60;

/// A window that repeats weekly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    /// Days on which it starts, Monday first.
    pub days: [bool; 7],
    /// Its start, in minutes of the day.
    pub from_min: u16,
    /// Its end; at or before `from_min` means the next day.
    pub to_min: u16,
    /// Minutes east of UTC; `None` means the caller's offset.
    pub utc_offset_min: Option<i32>,
}

impl Window {
    pub(super) fn contains(&self, now_ms: i64, callers_offset_min: i32) -> bool {
        let offset_min = i64::from(self.utc_offset_min.unwrap_or(callers_offset_min));
        let minutes = now_ms.div_euclid(60_000).saturating_add(offset_min);
        let (day, minute) =
            (minutes.div_euclid(i64::from(DAY_MINUTES)), minutes.rem_euclid(i64::from(DAY_MINUTES)));
        // 1 January 1970 was a Thursday.
        let weekday = (day + 3).rem_euclid(7);
        let opens_on = |day: i64| {
            usize::try_from(day.rem_euclid(7)).ok().and_then(|at| self.days.get(at)) == Some(&true)
        };
        let (from, to) = (i64::from(self.from_min), i64::from(self.to_min));
        if from < to {
            return opens_on(weekday) && (from..to).contains(&minute);
        }
        (minute >= from && opens_on(weekday)) || (minute < to && opens_on(weekday - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Monday, 5 January 2026, 00:00 UTC.
    const MONDAY_MS: i64 = 1_767_571_200_000;
    const HOUR_MS: i64 = 3_600_000;

    #[test]
    fn windows_open_and_close() {
        let week = [true, true, true, true, true, false, false];
        let day = Window { days: week, from_min: 9 * 60, to_min: 17 * 60, utc_offset_min: None };
        let night = Window { from_min: 22 * 60, to_min: 6 * 60, ..day.clone() };
        let tokyo = Window { utc_offset_min: Some(540), ..day.clone() };
        let always = Window { days: [true; 7], from_min: 0, to_min: 0, utc_offset_min: None };
        let cases = [
            (&day, 9, 0, true),
            (&day, 8, 0, false),
            (&day, 17, 0, false),
            (&day, 8, 60, true),
            (&day, 5 * 24 + 12, 0, false),
            (&night, 23, 0, true),
            (&night, 24 + 5, 0, true),
            (&night, 5, 0, false),
            (&night, 4 * 24 + 23, 0, true),
            (&night, 5 * 24 + 5, 0, true),
            (&night, 5 * 24 + 23, 0, false),
            (&tokyo, 0, 0, true),
            (&tokyo, 9, 0, false),
            (&always, 0, 0, true),
            (&always, 23, 0, true),
        ];
        for (window, hours, offset_min, expected) in cases {
            assert_eq!(
                window.contains(MONDAY_MS + hours * HOUR_MS, offset_min),
                expected,
                "{window:?} at {hours}"
            );
        }
        for (now_ms, offset_min) in [(i64::MIN, i32::MIN), (i64::MAX, i32::MAX)] {
            assert!(always.contains(now_ms, offset_min), "no overflow at the ends of time");
        }
    }
}
