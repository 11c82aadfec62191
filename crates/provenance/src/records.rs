//! Outputs that are lists of records. They are kept so that "the largest", "the latest" and "the one whose name is …" can be evaluated here
//! instead of trusting the agent.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::date;
use crate::intent::{Intent, LEXICON};
use crate::made::is_id;
use crate::plan::{Pick, Selection};
use crate::text::{self, Leaf};
use crate::transcript::Transcript;

/// Maximum number of cells. A list that doesn't fit can't be selected from.
const CELLS_MAX: usize = 100_000;
/// Maximum rows and fields of one list.
const ROWS_MAX: usize = 10_000;
const FIELDS_MAX: usize = 64;
/// Maximum indexed positions of one value.
const CELLS_ALIKE_MAX: usize = 64;
/// Approximate bytes per cell, including its index entry.
const CELL_BYTES: usize = 320;
/// Longer text is content, not a value to select.
const CELL_BYTES_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Records {
    lists: Vec<List>,
    /// Positions of a value, by tool and spelling.
    at: HashMap<(Box<str>, Box<str>), Vec<Cell>>,
    cells: usize,
    tools: BTreeSet<Box<str>>,
    /// Tools with a list that didn't fit. The extremes of such a list are unknown.
    cut: BTreeSet<Box<str>>,
}

#[derive(Debug)]
struct List {
    tool: Box<str>,
    rows: Vec<Record>,
    /// Minimum and maximum of each ordered field.
    ranges: BTreeMap<Box<str>, Range>,
}

#[derive(Debug, Clone)]
struct Scalar {
    spelt: Box<str>,
    /// The original text: the request names `Smith, Ann` with its comma.
    written: Box<str>,
    order: Option<Order>,
    trusted: bool,
}

impl Scalar {
    /// Whether the value equals the mark or contains it as a word.
    fn has(&self, mark: &str) -> bool {
        *self.spelt == *mark || self.spelt.split(' ').any(|word| word == mark)
    }

    /// The words by which the request names the record. Under a plan, which fixes the actions and the sources of objects, these may be
    /// values that others can write, such as subjects, or a number, or a name within a longer text.
    fn marks<'s>(&'s self, naming: &Naming<'_>) -> impl Iterator<Item = &'s str> {
        let Naming { intent, planned, transcript, .. } = *naming;
        let may_name = planned || self.trusted && self.spelt.contains(char::is_alphabetic);
        let is_whole = may_name && intent.is_telling(&self.spelt) && transcript.is_in_request(&self.written);
        let names = self.spelt.split(' ').filter(move |word| planned && intent.names.contains(*word));
        names.chain(is_whole.then_some(&*self.spelt))
    }
}

type Record = BTreeMap<Box<str>, Scalar>;

/// How a request names the record of an argument.
#[derive(Clone, Copy)]
pub(crate) struct Naming<'a> {
    pub(crate) intent: &'a Intent,
    pub(crate) transcript: &'a Transcript,
    pub(crate) argument: &'a str,
    pub(crate) planned: bool,
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

/// Which end of an order.
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

    /// Approximate memory use.
    pub(crate) fn bytes(&self) -> usize {
        self.cells.min(CELLS_MAX).saturating_mul(CELL_BYTES)
    }

    /// Whether a tool returned this value in this field.
    pub(crate) fn has(&self, tool: &str, field: &str, spelt: &str) -> bool {
        self.cells(tool, spelt).iter().any(|cell| &*cell.field == field)
    }

    fn cells(&self, tool: &str, spelt: &str) -> &[Cell] {
        self.at.get(&(tool.into(), spelt.into())).map_or(&[], Vec::as_slice)
    }

    /// Number of different values in the fields of a tool's lists that contain this value; `None` if no list does.
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

    /// Whether every list with this value, of any tool, identifies it by fields that no outsider can write.
    pub(crate) fn is_beside_anywhere(&self, spelt: &str, naming: &Naming<'_>) -> bool {
        let mut tools = self.tools.iter().filter(|tool| !self.cells(tool, spelt).is_empty()).peekable();
        self.cut.is_empty() && tools.peek().is_some() && tools.all(|tool| self.is_beside(tool, spelt, naming))
    }

    /// Whether the request names a record with this value by another of its fields, and no record with a different value matches too.
    pub(crate) fn is_beside(&self, tool: &str, spelt: &str, naming: &Naming<'_>) -> bool {
        let cells = self.cells(tool, spelt);
        cells.iter().filter(|_| cells.len() < CELLS_ALIKE_MAX).any(|cell| {
            let row = self.lists.get(cell.list).and_then(|list| list.rows.get(cell.row));
            let Some(row) = row.filter(|row| row.get(&cell.field).is_some_and(|own| own.trusted)) else {
                return false;
            };
            let is_other = |row: &Record| row.get(&cell.field).is_some_and(|one| &*one.spelt != spelt);
            // If the sentence about the argument names another record, that record is meant.
            let Naming { intent, argument, .. } = *naming;
            let near: BTreeSet<&String> =
                intent.about(argument).flatten().filter(|word| intent.names.contains(*word)).collect();
            let is_elsewhere = |mark: &str| {
                let is_another =
                    |name: &&String| self.marked(tool, name).iter().any(|(row, _)| is_other(row));
                !near.iter().any(|name| *name == mark) && near.iter().any(is_another)
            };
            let is_meant = |field: &str, mark: &str| {
                // The same value in another field means something else, if the request distinguishes the fields.
                let is_said = |field: &str| intent.about(field).next().is_some();
                let is_apart = |other: &str| other != field && is_said(field) && !is_said(other);
                let marked = self.marked(tool, mark);
                marked.len() < CELLS_ALIKE_MAX
                    && marked.iter().all(|(row, other)| !is_other(row) || is_apart(other))
                    && !is_elsewhere(mark)
            };
            let mut others = row.iter().filter(|(field, _)| **field != cell.field);
            others.any(|(field, scalar)| scalar.marks(naming).any(|mark| is_meant(field, mark)))
        })
    }

    /// The records of a tool that contain a word or a value of the request, with the matching field. Reaching the maximum counts as too
    /// many.
    fn marked(&self, tool: &str, mark: &str) -> Vec<(&Record, &str)> {
        let rows = self.of_tool(tool).flat_map(|list| &list.rows);
        let cells = rows.flat_map(|row| row.iter().map(move |(field, scalar)| (row, &**field, scalar)));
        let marked = cells.filter(|(.., scalar)| scalar.has(mark)).take(CELLS_ALIKE_MAX);
        marked.map(|(row, field, _)| (row, field)).collect()
    }

    /// All trusted numbers except ids, each with its tool and spelling.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (&str, &str, f64)> {
        let rows = self.lists.iter().flat_map(|list| list.rows.iter().map(move |row| (&*list.tool, row)));
        let cells = rows.flat_map(|(tool, row)| row.iter().map(move |(field, scalar)| (tool, field, scalar)));
        cells.filter_map(|(tool, field, scalar)| match scalar.order {
            Some(Order::Number(number)) if scalar.trusted && !is_id(field) => {
                Some((tool, &*scalar.spelt, number))
            }
            Some(_) | None => None,
        })
    }

    fn of_tool(&self, tool: &str) -> impl Iterator<Item = &List> {
        self.lists.iter().filter(move |list| &*list.tool == tool)
    }

    /// Whether `is_extreme` holds in the outputs of any tool, and no output contradicts it.
    ///
    /// "The latest mail" is one that the mail tool returned. If no tool is named after the thing, any tool counts.
    pub(crate) fn is_extreme_anywhere(&self, spelt: &str, ends: &[Extreme], intent: &Intent) -> bool {
        if !self.cut.is_empty() {
            return false;
        }
        let is_named = self.tools.iter().any(|tool| intent.ends_name(tool));
        let tools = self.tools.iter().filter(|tool| !is_named || intent.ends_name(tool));
        let mut claims = tools.filter_map(|tool| self.is_extreme(tool, spelt, ends)).peekable();
        claims.peek().is_some() && claims.all(|holds| holds)
    }

    /// Whether a value is in a record at one of these ends of its list, by any field except ids. `None` if no list can tell.
    pub(crate) fn is_extreme(&self, tool: &str, spelt: &str, ends: &[Extreme]) -> Option<bool> {
        if self.cut.contains(tool) {
            return Some(false);
        }
        let cells = self.cells(tool, spelt);
        let mut holds = None;
        // A value that occurs too often identifies nothing.
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
                    holds = Some(holds.unwrap_or(false) || end.is_at(order, range));
                }
            }
        }
        holds
    }

    /// The selected values, normalized; `None` if there is nothing to select from.
    pub(crate) fn select(&self, selection: &Selection) -> Option<Vec<String>> {
        if selection.from.iter().any(|tool| self.cut.contains(tool.as_str())) {
            return None;
        }
        let mut rows: Vec<&Record> = self.rows_of(selection).collect();
        if let Some(wanted) = &selection.whose {
            let spelt = spelt(&wanted.is);
            rows.retain(|row| row.get(wanted.field.as_str()).is_some_and(|scalar| *scalar.spelt == *spelt));
        }
        if rows.is_empty() {
            return None;
        }
        let by = |row: &&Record| row.get(selection.by.as_deref()?)?.order.map(Order::value);
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

    /// Whether a selection depends on fields that an outsider can write.
    pub(crate) fn is_by_untrusted(&self, selection: &Selection) -> bool {
        let fields = [
            Some(selection.field.as_str()),
            selection.by.as_deref(),
            selection.whose.as_ref().map(|one| one.field.as_str()),
        ];
        let is_theirs = |field: &&str, row: &Record| row.get(*field).is_some_and(|scalar| !scalar.trusted);
        self.rows_of(selection).any(|row| fields.iter().flatten().any(|field| is_theirs(field, row)))
    }

    fn rows_of(&self, selection: &Selection) -> impl Iterator<Item = &Record> {
        let lists = self.lists.iter().filter(|list| selection.from.iter().any(|tool| **tool == *list.tool));
        lists.flat_map(|list| &list.rows)
    }
}

/// All rows at one end: in a tie, each is correct.
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
        range.days == matches!(self, Self::Latest | Self::Earliest)
    }

    /// Whether a plan's pick asks for this end.
    pub(crate) fn is_picked_by(self, pick: Pick) -> bool {
        matches!(
            (self, pick),
            (Self::Most, Pick::Largest)
                | (Self::Least, Pick::Smallest)
                | (Self::Latest, Pick::Latest)
                | (Self::Earliest, Pick::Earliest)
        )
    }

    fn is_at(self, order: Order, range: &Range) -> bool {
        let end = match self {
            Self::Most | Self::Latest => range.most,
            Self::Least | Self::Earliest => range.least,
        };
        order.value() >= end && order.value() <= end
    }
}

/// The ends that the request names. Unrecognized words select nothing, which allows nothing.
pub(crate) fn ends_in(words: &[String]) -> Vec<Extreme> {
    use Extreme::{Earliest, Latest, Least, Most};
    let end = |(at, word): (usize, &String)| {
        let end = end_of_word(word);
        match (end, words.get(at.saturating_add(1)).map(String::as_str)) {
            (Some(Most), Some("recent")) => Some(Latest),
            (Some(Least), Some("recent")) => Some(Earliest),
            _other => end,
        }
    };
    words.iter().enumerate().filter_map(end).collect()
}

/// Whether a word names an end: "largest", "latest".
pub(crate) fn is_end(word: &str) -> bool {
    end_of_word(word).is_some()
}

fn end_of_word(word: &str) -> Option<Extreme> {
    const ENDS: [(&str, Extreme); 4] = [
        ("most", Extreme::Most),
        ("least", Extreme::Least),
        ("latest", Extreme::Latest),
        ("earliest", Extreme::Earliest),
    ];
    ENDS.iter().find(|(heading, _)| LEXICON.names(heading, word)).map(|(_, end)| *end)
}

/// A record and its path.
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
    let number = |one: &String| one.parse().ok().filter(|one: &f64| one.is_finite()).map(Order::Number);
    let order = match words.as_slice() {
        [one] => number(one).or_else(|| day(one, None)),
        [one, time] => day(one, Some(time)),
        _many => None,
    };
    let spelt: Box<str> = words.join(" ").into();
    let written = text::text_of(Leaf::Scalar(value)).into();
    Some(Scalar { spelt, written, order, trusted })
}

fn day(word: &str, time: Option<&str>) -> Option<Order> {
    let minutes = time.map_or(Some(0), |time| {
        let (hour, minute) = time.split_once(':')?;
        hour.parse::<u32>().ok()?.checked_mul(60)?.checked_add(minute.parse().ok()?)
    });
    Some(Order::Day(date::order(word)?, minutes?))
}

/// The normalized spelling in which cells are compared.
pub(crate) fn spelt(value: &Value) -> String {
    let mut all = Vec::new();
    text::leaves(value, &mut |_, leaf| all.extend(text::words_of(leaf)));
    all.join(" ")
}
