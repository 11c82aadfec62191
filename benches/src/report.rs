//! Figures, one `name value unit` a line, and beside them the bars that they are held against.

use std::fmt;

use serde_json::{Value, json};

/// One measured figure.
#[derive(Debug)]
struct Figure {
    name: String,
    value: f64,
    unit: String,
}

/// What a figure must be.
#[derive(Debug)]
enum Bar {
    AtMost(f64),
    AtLeast(f64),
}

/// The promises. Each is about a figure of the same run.
const BARS: &[(&str, Bar)] = &[
    ("policy.decide.rules1000", Bar::AtMost(1_000.0)),
    ("policy.cedar.rules1000.ratio", Bar::AtLeast(100.0)),
    ("policy.regorus.rules1000.ratio", Bar::AtLeast(100.0)),
    ("policy.provenance.decide", Bar::AtMost(20.0)),
    ("policy.provenance.decide.flatness", Bar::AtMost(1.5)),
    ("policy.sequence.decide", Bar::AtMost(2_000.0)),
    ("policy.rego.indexed1000", Bar::AtMost(20_000.0)),
    ("policy.cedar.indexed1000", Bar::AtMost(20_000.0)),
    ("policy.sim.entries100000", Bar::AtMost(5.0)),
    ("syscall.noop.memory", Bar::AtMost(10.0)),
    ("syscall.noop.durable.callers1.ratio", Bar::AtMost(3.0)),
    ("syscall.noop.durable.callers256", Bar::AtLeast(50_000.0)),
    ("ledger.verify", Bar::AtLeast(500_000.0)),
    ("ledger.append.flatness", Bar::AtMost(1.25)),
    ("ledger.start.crashed1m.first", Bar::AtMost(0.5)),
    ("ledger.start.crashed1m", Bar::AtMost(0.5)),
    ("ledger.resume.crashed1m.first", Bar::AtMost(1.0)),
    ("ledger.resume.crashed1m", Bar::AtMost(1.0)),
    ("ledger.start.lanes1000", Bar::AtMost(1.0)),
    ("ledger.call.entries", Bar::AtMost(4.0)),
    ("ledger.call.bytes", Bar::AtMost(2_500.0)),
    ("sandbox.process.true.ratio", Bar::AtMost(4.0)),
    ("sandbox.bwrap.true.ratio", Bar::AtLeast(1.0)),
    ("sandbox.process.repository.true.ratio", Bar::AtMost(4.0)),
    ("sandbox.process.repository.call.ratio", Bar::AtMost(4.0)),
    ("microvm.hello", Bar::AtMost(10.0)),
    ("microvm.hello.warm.ratio", Bar::AtMost(1.5)),
    ("microvm.kill", Bar::AtMost(1.0)),
    ("wasm.instantiate_call", Bar::AtMost(10.0)),
    ("wasm.host_call", Bar::AtMost(1.0)),
    ("judge.pairs.sessions32", Bar::AtLeast(3_000.0)),
    ("judge.decide.flatness", Bar::AtMost(1.5)),
    ("judge.observe.1m", Bar::AtMost(60.0)),
    ("judge.start.entries1m", Bar::AtMost(0.1)),
    ("judge.sessions10000.rss", Bar::AtMost(500.0)),
    ("redact.throughput", Bar::AtLeast(100.0)),
    ("state.rate.sqlite.callers256", Bar::AtLeast(20_000.0)),
    // Beside 256 busy callers a call waits for a worker thread and shares its fsync with them. Half as much again is that, and no second fsync.
    ("state.plain.beside.ratio", Bar::AtMost(1.5)),
    ("state.decision.flatness", Bar::AtMost(1.5)),
    // A hundredth of a core: timers of the runtime, and no poll per question.
    ("state.idle.questions10000", Bar::AtMost(1.0)),
    ("stream.first_byte", Bar::AtMost(20.0)),
    ("stream.start.first_byte", Bar::AtMost(20.0)),
    ("stream.rss.peak", Bar::AtMost(150.0)),
    ("broker.request.added", Bar::AtMost(0.3)),
    ("provider.overhead", Bar::AtMost(0.5)),
    ("scheduler.mixed", Bar::AtLeast(2.0)),
    ("local.decode.llamacpp.ratio", Bar::AtLeast(0.7)),
    ("cli.version", Bar::AtMost(10.0)),
    ("kernel.rss.idle", Bar::AtMost(30.0)),
    ("task.step.durable.ratio", Bar::AtLeast(1.0)),
    ("task.concurrent1000.rss", Bar::AtMost(500.0)),
];

/// All figures of a run, shown as they come.
#[derive(Debug)]
pub struct Report {
    figures: Vec<Figure>,
    skipped: Vec<String>,
    as_json: bool,
}

impl Report {
    /// An empty one.
    pub fn new(as_json: bool) -> Self {
        Self { figures: Vec::new(), skipped: Vec::new(), as_json }
    }

    /// Adds a figure and shows it.
    pub fn figure(&mut self, name: &str, value: f64, unit: &str) {
        let figure = Figure { name: name.to_owned(), value, unit: unit.to_owned() };
        if !self.as_json {
            println!("{figure}");
        }
        self.figures.push(figure);
    }

    /// Says what could not be measured here.
    pub fn skip(&mut self, name: &str, why: impl fmt::Display) {
        self.skipped.push(format!("{name}: {why}"));
    }

    /// Adds what another process has measured and told as JSON.
    pub fn join(&mut self, told: &Value) {
        for figure in told["figures"].as_array().into_iter().flatten() {
            let text = |key: &str| figure[key].as_str().unwrap_or_default().to_owned();
            self.figure(&text("name"), figure["value"].as_f64().unwrap_or(f64::NAN), &text("unit"));
        }
        let skipped = told["skipped"].as_array().into_iter().flatten();
        self.skipped.extend(skipped.filter_map(Value::as_str).map(str::to_owned));
    }

    /// Shows the bars met and missed, or everything as one JSON object.
    pub fn close(&self) {
        if self.as_json {
            println!("{}", self.to_json());
            return;
        }
        println!();
        for (figure, bar) in self.barred() {
            println!("{:<6} {figure} ({bar})", word(bar.is_met(figure.value)));
        }
        for line in &self.skipped {
            println!("skipped {line}");
        }
        let met = self.barred().filter(|(figure, bar)| bar.is_met(figure.value)).count();
        println!("bars: {met} met, {} missed", self.barred().count() - met);
    }

    fn barred(&self) -> impl Iterator<Item = (&Figure, &'static Bar)> {
        let bar_of =
            |figure: &&Figure| BARS.iter().find(|(name, _)| *name == figure.name).map(|(_, bar)| bar);
        self.figures.iter().filter_map(move |figure| Some((figure, bar_of(&figure)?)))
    }

    fn to_json(&self) -> Value {
        let figures: Vec<Value> = self.figures.iter().map(Figure::to_json).collect();
        let bars: Vec<Value> = self
            .barred()
            .map(|(figure, bar)| {
                json!({"name": figure.name, "bar": bar.to_string(), "met": bar.is_met(figure.value)})
            })
            .collect();
        json!({"schema": "regent.bench/v1", "figures": figures, "bars": bars, "skipped": self.skipped})
    }
}

impl Bar {
    fn is_met(&self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= *most,
            Self::AtLeast(least) => value >= *least,
        }
    }
}

fn word(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}

impl Figure {
    fn to_json(&self) -> Value {
        json!({"name": self.name, "value": self.value, "unit": self.unit})
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, unit } = self;
        match value {
            large if *large >= 1_000.0 => write!(f, "{name} {large:.0} {unit}"),
            middle if *middle >= 10.0 => write!(f, "{name} {middle:.1} {unit}"),
            small => write!(f, "{name} {small:.3} {unit}"),
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "bar: at most {most}"),
            Self::AtLeast(least) => write!(f, "bar: at least {least}"),
        }
    }
}
