//! Outputs that are lists of records, so that "the largest", "the latest" and "the one whose name is …" can be evaluated here rather than
//! believed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::date;
use crate::made::is_id;
use crate::plan::{Pick, Selection};
use crate::text::{self, Leaf};

/// Cells that are kept at most. A list that doesn't fit is not selected from.
const CELLS_MAX: usize = 100_000;
/// Rows and fields of one list.
const ROWS_MAX: usize = 10_000;
const FIELDS_MAX: usize = 64;
/// Places of one value that are kept.
const CELLS_ALIKE_MAX: usize = 64;
/// Numbers that something is worked out of.
const NUMBERS_MAX: usize = 16;
/// Longer text is content, not a value to select.
const CELL_BYTES_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Records {
    lists: Vec<List>,
    /// Where a value is, by tool and spelling.
    at: HashMap<(Box<str>, Box<str>), Vec<Cell>>,
    cells: usize,
    tools: BTreeSet<Box<str>>,
    /// Tools of which a list did not fit. What stands at an end of it, nobody can say.
    cut: BTreeSet<Box<str>>,
}

#[derive(Debug)]
struct List {
    tool: Box<str>,
    rows: Vec<Record>,
    /// The least and the greatest of each field that has an order.
    ranges: BTreeMap<Box<str>, Range>,
}

#[derive(Debug, Clone)]
struct Scalar {
    spelt: Box<str>,
    /// As it was written, where that differs: the request names `Smith, Ann` with its comma.
    written: Option<Box<str>>,
    order: Option<Order>,
    trusted: bool,
}

impl Scalar {
    fn text(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.spelt)
    }

    /// Whether it is this, or has this as a word.
    fn has(&self, mark: &str) -> bool {
        *self.spelt == *mark || self.spelt.split(' ').any(|word| word == mark)
    }
}

type Record = BTreeMap<Box<str>, Scalar>;

/// How a request names records.
pub(crate) struct Naming<'a> {
    /// By which words of the request a value, as written and as spelt, is named. It is told whether the value is trusted.
    pub(crate) marks: &'a dyn Fn(&str, &str, bool) -> Vec<String>,
    /// The names in the sentences about the argument.
    pub(crate) near: Vec<String>,
    /// Whether the request has a word for a field.
    pub(crate) is_said: &'a dyn Fn(&str) -> bool,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Number(f64),
    Day(u32, u32),
}

#[derive(Debug, Clone, Copy)]
struct Range {
    least: f64,
    most: f64,
    days: bool,
}

#[derive(Debug, Clone)]
struct Cell {
    list: usize,
    row: usize,
    field: Box<str>,
}

/// Which end of an order is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extreme {
    Most,
    Least,
    Latest,
    Earliest,
}

impl Records {
    /// Keeps the lists of records in an output.
    pub(crate) fn take(&mut self, tool: &str, output: &Value, trusted: impl Fn(&str) -> bool) {
        for rows in lists_of(output) {
            let cells: usize = rows.iter().map(|(_, row)| row.len()).sum();
            self.cells = self.cells.saturating_add(cells);
            if self.cells > CELLS_MAX || rows.len() > ROWS_MAX {
                self.cut.insert(tool.into());
                return;
            }
            self.keep(tool, &rows, &trusted);
        }
    }

    fn keep(&mut self, tool: &str, rows: &[Row<'_>], trusted: &impl Fn(&str) -> bool) {
        let number = self.lists.len();
        let mut list = List { tool: tool.into(), rows: Vec::new(), ranges: BTreeMap::new() };
        for (row_number, (path, row)) in rows.iter().enumerate() {
            let mut kept = BTreeMap::new();
            for (field, value) in row.iter().take(FIELDS_MAX) {
                let Some(scalar) = scalar_of(value, trusted(&format!("{path}.{field}"))) else { continue };
                let cell = Cell { list: number, row: row_number, field: field.as_str().into() };
                let alike = self.at.entry((tool.into(), scalar.spelt.clone())).or_default();
                if alike.len() < CELLS_ALIKE_MAX {
                    alike.push(cell);
                }
                if let Some(order) = scalar.order {
                    list.widen(field, order);
                }
                kept.insert(field.as_str().into(), scalar);
            }
            list.rows.push(kept);
        }
        self.tools.insert(tool.into());
        self.lists.push(list);
    }

    /// Whether a tool gave this value in this field.
    pub(crate) fn has(&self, tool: &str, field: &str, spelt: &str) -> bool {
        self.cells(tool, spelt).iter().any(|cell| &*cell.field == field)
    }

    fn cells(&self, tool: &str, spelt: &str) -> &[Cell] {
        self.at.get(&(tool.into(), spelt.into())).map_or(&[], Vec::as_slice)
    }

    /// How many different values there are in the fields of a tool's lists that have this one; `None`: no list has it.
    pub(crate) fn rivals(&self, tool: &str, spelt: &str) -> Option<usize> {
        if self.cut.contains(tool) {
            return Some(usize::MAX);
        }
        let of = |cell: &Cell| {
            let rows = self.lists.get(cell.list).map(|list| list.rows.as_slice()).unwrap_or_default();
            let values = rows.iter().filter_map(|row| row.get(&cell.field)).map(|scalar| &*scalar.spelt);
            values.collect::<BTreeSet<&str>>().len()
        };
        self.cells(tool, spelt).iter().map(of).max()
    }

    /// Whether each list of any tool that has this value singles it out by what no outsider can write.
    pub(crate) fn is_beside_anywhere(&self, spelt: &str, naming: &Naming<'_>) -> bool {
        let mut tools = self.tools.iter().filter(|tool| !self.cells(tool, spelt).is_empty()).peekable();
        self.cut.is_empty() && tools.peek().is_some() && tools.all(|tool| self.is_beside(tool, spelt, naming))
    }

    /// Whether a record that has this value has another one by which the request names it, and no record with another value has that too.
    pub(crate) fn is_beside(&self, tool: &str, spelt: &str, naming: &Naming<'_>) -> bool {
        let cells = self.cells(tool, spelt);
        cells.iter().filter(|_| cells.len() < CELLS_ALIKE_MAX).any(|cell| {
            let row = self.lists.get(cell.list).and_then(|list| list.rows.get(cell.row));
            let Some(row) = row.filter(|row| row.get(&cell.field).is_some_and(|own| own.trusted)) else {
                return false;
            };
            let is_other = |row: &Record| row.get(&cell.field).is_some_and(|one| &*one.spelt != spelt);
            // Where the sentence about the argument names another record, that one is meant.
            let elsewhere = |mark: &str| {
                let near = || naming.near.iter().filter(|name| **name != mark);
                let is_near = naming.near.iter().any(|name| *name == mark);
                !is_near && near().any(|name| self.marked(tool, name, "").any(|(row, _)| is_other(row)))
            };
            row.iter().filter(|(field, _)| **field != cell.field).any(|(field, scalar)| {
                (naming.marks)(scalar.text(), &scalar.spelt, scalar.trusted).iter().any(|mark| {
                    // In another field it says something else of a record, as long as the request tells the fields apart.
                    let is_apart = |other: &str| {
                        other != &**field && (naming.is_said)(field) && !(naming.is_said)(other)
                    };
                    let mut rivals = self.marked(tool, mark, &cell.field).filter(|(row, _)| is_other(row));
                    rivals.all(|(_, other)| is_apart(other)) && !elsewhere(mark)
                })
            })
        })
    }

    /// The records of a tool that have a word or a whole value of the request in a field other than this, and in which.
    fn marked<'r>(
        &'r self,
        tool: &'r str,
        mark: &'r str,
        but: &'r str,
    ) -> impl Iterator<Item = (&'r Record, &'r str)> {
        let rows = self.of_tool(tool).flat_map(|list| &list.rows);
        rows.flat_map(move |row| {
            let has =
                move |(field, scalar): &(&'r Box<str>, &'r Scalar)| ***field != *but && scalar.has(mark);
            row.iter().filter(has).map(move |(field, _)| (row, &**field))
        })
    }

    /// The numbers, ids aside, of the one record of each tool that this word of the request names, if all such records have the same: whoever
    /// adds a record of that name makes it ambiguous. Where the request has a word for a field, the name counts only there.
    pub(crate) fn numbers_beside(&self, mark: &str, is_said: impl Fn(&str) -> bool) -> Vec<f64> {
        let number = |(field, scalar): (&Box<str>, &Scalar)| match scalar.order {
            Some(Order::Number(number)) if scalar.trusted && !is_id(field) => Some(number),
            Some(_) | None => None,
        };
        let of = |tool: &Box<str>| {
            let is_said = self.marked(tool, mark, "").any(|(_, field)| is_said(field)).then_some(&is_said);
            let rows = self.marked(tool, mark, "").filter(|(_, field)| is_said.is_none_or(|is| is(field)));
            let mut all = rows.map(|(row, _)| row.iter().filter_map(number).collect::<Vec<f64>>());
            let first = all.next().unwrap_or_default();
            if all.all(|other| other == first) { first } else { Vec::new() }
        };
        self.tools.iter().filter(|tool| !self.cut.contains(*tool)).flat_map(of).take(NUMBERS_MAX).collect()
    }

    /// Whether a tool gave this value only as an id.
    pub(crate) fn is_only_id(&self, tool: &str, spelt: &str) -> bool {
        let cells = self.cells(tool, spelt);
        !cells.is_empty() && cells.len() < CELLS_ALIKE_MAX && cells.iter().all(|cell| is_id(&cell.field))
    }

    fn of_tool(&self, tool: &str) -> impl Iterator<Item = &List> {
        self.lists.iter().filter(move |list| &*list.tool == tool)
    }

    /// The same, in the outputs of any tool; and nothing says otherwise.
    pub(crate) fn is_extreme_anywhere(&self, spelt: &str, ends: &[Extreme]) -> bool {
        if !self.cut.is_empty() {
            return false;
        }
        let mut told = self.tools.iter().filter_map(|tool| self.is_extreme(tool, spelt, ends)).peekable();
        told.peek().is_some() && told.all(|told| told)
    }

    /// Whether a value is in a record that stands at one of these ends of its list, by any field but ids. `None`: no list says.
    pub(crate) fn is_extreme(&self, tool: &str, spelt: &str, ends: &[Extreme]) -> Option<bool> {
        if self.cut.contains(tool) {
            return Some(false);
        }
        let cells = self.cells(tool, spelt);
        let mut told = None;
        // A value that is all over the place singles nothing out.
        for cell in cells.iter().filter(|_| cells.len() < CELLS_ALIKE_MAX) {
            let Some(list) = self.lists.get(cell.list).filter(|list| list.rows.len() > 1) else { continue };
            let Some(row) = list.rows.get(cell.row) else { continue };
            for (field, scalar) in row.iter().filter(|(field, _)| **field != cell.field && !is_id(field)) {
                let (Some(order), Some(range)) = (scalar.order, list.ranges.get(field)) else { continue };
                // An outsider who writes the field can write any number into it.
                if !scalar.trusted {
                    continue;
                }
                for end in ends.iter().filter(|end| end.is_of(range)) {
                    told = Some(told.unwrap_or(false) || end.is_at(order, range));
                }
            }
        }
        told
    }

    /// The values that a selection picks, spelt; `None` if there is nothing to pick from.
    pub(crate) fn select(&self, selection: &Selection) -> Option<Vec<String>> {
        if selection.from.iter().any(|tool| self.cut.contains(tool.as_str())) {
            return None;
        }
        let mut rows: Vec<&Record> = self
            .lists
            .iter()
            .filter(|list| selection.from.iter().any(|tool| **tool == *list.tool))
            .flat_map(|list| &list.rows)
            .collect();
        if let Some(wanted) = &selection.whose {
            let spelt = spelt(&wanted.is);
            rows.retain(|row| row.get(wanted.field.as_str()).is_some_and(|scalar| *scalar.spelt == *spelt));
        }
        if rows.is_empty() {
            return None;
        }
        let by = |row: &&Record| {
            selection
                .by
                .as_deref()
                .and_then(|by| row.get(by))
                .and_then(|scalar| scalar.order)
                .map(Order::value)
        };
        let picked: Vec<&Record> = match selection.pick {
            Pick::Every => rows,
            Pick::First => rows.into_iter().take(1).collect(),
            Pick::Count => return Some(vec![rows.len().to_string()]),
            Pick::Largest | Pick::Latest => end_of(rows, by, |one, best| one > best),
            Pick::Smallest | Pick::Earliest => end_of(rows, by, |one, best| one < best),
        };
        let field = selection.field.as_str();
        Some(picked.iter().filter_map(|row| row.get(field)).map(|scalar| scalar.spelt.to_string()).collect())
    }

    /// Whether a selection rests on what an outsider can write.
    pub(crate) fn is_by_untrusted(&self, selection: &Selection) -> bool {
        let fields = [
            Some(selection.field.as_str()),
            selection.by.as_deref(),
            selection.whose.as_ref().map(|one| one.field.as_str()),
        ];
        let lists = self.lists.iter().filter(|list| selection.from.iter().any(|tool| **tool == *list.tool));
        let mut rows = lists.flat_map(|list| &list.rows);
        rows.any(|row| {
            fields.iter().flatten().any(|field| row.get(*field).is_some_and(|scalar| !scalar.trusted))
        })
    }
}

/// All rows at one end: where two share it, either is right.
fn end_of<'r, R: ?Sized>(
    rows: Vec<&'r R>,
    by: impl Fn(&&'r R) -> Option<f64>,
    better: impl Fn(f64, f64) -> bool,
) -> Vec<&'r R> {
    let best = rows.iter().filter_map(&by).reduce(|best, one| if better(one, best) { one } else { best });
    rows.into_iter().filter(|row| best.is_some() && by(row) == best).collect()
}

impl List {
    fn widen(&mut self, field: &str, order: Order) {
        let (value, days) = (order.value(), matches!(order, Order::Day(..)));
        let range = self.ranges.entry(field.into()).or_insert(Range { least: value, most: value, days });
        (range.least, range.most) = (range.least.min(value), range.most.max(value));
        range.days &= days;
    }
}

impl Order {
    fn value(self) -> f64 {
        match self {
            Self::Number(number) => number,
            Self::Day(day, minute) => f64::from(day) + f64::from(minute) / 1440.0,
        }
    }
}

impl Extreme {
    fn is_of(self, range: &Range) -> bool {
        match self {
            Self::Most | Self::Least => !range.days,
            Self::Latest | Self::Earliest => range.days,
        }
    }

    fn is_at(self, order: Order, range: &Range) -> bool {
        let end = match self {
            Self::Most | Self::Latest => range.most,
            Self::Least | Self::Earliest => range.least,
        };
        order.value() >= end && order.value() <= end
    }
}

/// The ends that the words of a request name. English; what isn't recognised selects nothing, and selecting nothing allows nothing.
pub(crate) fn ends_in(words: &[String]) -> Vec<Extreme> {
    let mut ends = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let after = words.get(at.saturating_add(1)).map(String::as_str);
        ends.extend(match (word.as_str(), after) {
            ("most" | "more", Some("recent")) => Some(Extreme::Latest),
            ("least", Some("recent")) => Some(Extreme::Earliest),
            ("largest" | "biggest" | "highest" | "greatest" | "maximum" | "longest" | "most", _) => {
                Some(Extreme::Most)
            }
            ("smallest" | "lowest" | "least" | "cheapest" | "minimum" | "shortest" | "fewest", _) => {
                Some(Extreme::Least)
            }
            ("latest" | "newest", _) => Some(Extreme::Latest),
            ("earliest" | "oldest", _) => Some(Extreme::Earliest),
            _other => None,
        });
    }
    ends
}

/// A record, and the path to it.
type Row<'v> = (String, &'v serde_json::Map<String, Value>);

fn lists_of(output: &Value) -> Vec<Vec<Row<'_>>> {
    let mut lists = Vec::new();
    collect(output, "", 0, &mut lists);
    lists
}

fn collect<'v>(value: &'v Value, path: &str, depth: u8, lists: &mut Vec<Vec<Row<'v>>>) {
    if depth > 4 {
        return;
    }
    let inner: Vec<(String, &Value)> = match value {
        Value::Array(items) => items.iter().map(|item| (format!("{path}[]"), item)).collect(),
        Value::Object(fields) => fields.iter().map(|(key, item)| (format!("{path}.{key}"), item)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
    };
    let rows: Vec<Row<'v>> =
        inner.iter().filter_map(|(path, item)| Some((path.clone(), item.as_object()?))).collect();
    if !rows.is_empty() && rows.len() == inner.len() {
        lists.push(rows);
    } else if depth == 0
        && let Value::Object(row) = value
    {
        // A single record is a list of one.
        lists.push(vec![(path.to_owned(), row)]);
    }
    for (path, item) in inner.into_iter().filter(|(_, item)| item.is_array()) {
        collect(item, &path, depth.saturating_add(1), lists);
    }
}

fn scalar_of(value: &Value, trusted: bool) -> Option<Scalar> {
    let words = match value {
        Value::String(text) if text.is_empty() || text.len() > CELL_BYTES_MAX => return None,
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => text::words_of(Leaf::Scalar(value)),
    };
    let order = match words.as_slice() {
        [one] => one
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
            .map(Order::Number)
            .or_else(|| day(one, None)),
        [one, time] => day(one, Some(time)),
        _many => None,
    };
    let spelt: Box<str> = words.join(" ").into();
    let written = value.as_str().filter(|text| **text != *spelt).map(Box::from);
    Some(Scalar { spelt, written, order, trusted })
}

fn day(word: &str, time: Option<&str>) -> Option<Order> {
    let minutes = time.map_or(Some(0), |time| {
        let (hour, minute) = time.split_once(':')?;
        hour.parse::<u32>().ok()?.checked_mul(60)?.checked_add(minute.parse().ok()?)
    });
    Some(Order::Day(date::order(word)?, minutes?))
}

/// A value in the spelling that cells are compared in.
pub(crate) fn spelt(value: &Value) -> String {
    let mut all = Vec::new();
    text::leaves(value, &mut |_, leaf| all.extend(text::words_of(leaf)));
    all.join(" ")
}
