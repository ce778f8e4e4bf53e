//! The frontier as an SVG picture: body bytes to the right, loss upwards. Colours follow the page, light or dark.

use std::fmt::Write;

use headwater_calibration::tuning::choice::Measure;
use headwater_calibration::tuning::interval::MeasuredCost;

use super::Tuned;

/// Size of the picture, in pixels.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;

/// Corners of the plot within the picture: left, top, right, bottom.
const LEFT: f64 = 76.0;
const TOP: f64 = 56.0;
const RIGHT: f64 = 736.0;
const BOTTOM: f64 = 396.0;

/// Ratio of the largest to the least number from which an axis is logarithmic.
const LEAST_LOGARITHMIC: f64 = 8.0;

/// Marks of an axis, about.
const MARKS: f64 = 6.0;

const STYLE: &str = "
svg { color-scheme: light dark; font: 13px system-ui, sans-serif; }
.ground { fill: #ffffff; } text { fill: #1c2733; } .quiet { fill: #55636f; }
.axis { stroke: #55636f; } .grid { stroke: #e1e6ea; } .interval { stroke: #1f6feb; stroke-opacity: 0.3; }
.line { stroke: #1f6feb; fill: none; } .point { fill: #1f6feb; }
.target { stroke: #b4460b; stroke-dasharray: 6 4; } .chosen { fill: #b4460b; } .marked { fill: #b4460b; }
@media (prefers-color-scheme: dark) {
.ground { fill: #12181e; } text { fill: #e4e9ee; } .quiet { fill: #a3b0bb; }
.axis { stroke: #a3b0bb; } .grid { stroke: #2a343d; } .interval { stroke: #6cb0ff; }
.line { stroke: #6cb0ff; } .point { fill: #6cb0ff; }
.target { stroke: #ff9a5c; } .chosen { fill: #ff9a5c; } .marked { fill: #ff9a5c; }
}
";

/// Contents of a picture.
struct Picture {
    title: String,
    description: String,
    /// Settings, from few bytes to many.
    points: Vec<Point>,
    chosen: Option<Point>,
    /// Most body bytes that were asked for.
    body_bytes: Option<f64>,
    /// Largest loss that was asked for, in points.
    loss_points: Option<f64>,
}

/// One setting.
#[derive(Clone, Copy)]
struct Point {
    body_bytes: f64,
    interval: Option<[f64; 2]>,
    loss_points: f64,
}

/// Map of numbers to pixels along one direction.
struct Axis {
    from: f64,
    to: f64,
    is_logarithmic: bool,
    /// Pixels of `from` and `to`.
    pixels: [f64; 2],
}

/// The picture of a frontier; `data` names the data set.
pub(super) fn picture(tuned: &Tuned<'_>, data: &str) -> String {
    let point = |index: usize, cost: Option<&MeasuredCost>| {
        let figures = &tuned.settings[index].figures;
        Point {
            body_bytes: figures.mean.body_bytes,
            interval: cost.and_then(|cost| cost.body_bytes.interval),
            loss_points: Measure::Loss.of(figures, tuned.criteria.bound),
        }
    };
    let mut points: Vec<Point> =
        tuned.frontier.iter().map(|(index, cost)| point(*index, Some(cost))).collect();
    points.sort_by(|a, b| a.body_bytes.total_cmp(&b.body_bytes));
    let name = &tuned.bundle.manifest().name;
    let said = |point: &Point| format!("{:.1} bytes at {:.2} points", point.body_bytes, point.loss_points);
    let chosen = tuned.chosen().map(|index| point(index, None));
    let mut description = format!(
        "Settings of the early exits that no other beats in loss, bytes and compute, measured on {} validation samples; bars are 95 % intervals of \
         the bytes.",
        tuned.validation.samples.len()
    );
    if let [first, .., last] = &points[..] {
        let _ = write!(description, " From {} to {}.", said(first), said(last));
    }
    if let Some(chosen) = &chosen {
        let _ = write!(description, " Chosen: {}.", said(chosen));
    }
    let title = format!("{name} on {data}: loss and bytes");
    let targets = tuned.criteria.targets;
    Picture {
        title,
        description,
        points,
        chosen,
        body_bytes: targets.body_bytes,
        loss_points: targets.loss_points,
    }
    .svg()
}

impl Picture {
    fn svg(&self) -> String {
        let Self { title, description, .. } = self;
        let (right, up) = (self.axis_of_bytes(), self.axis_of_loss());
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"title description\">\n\
             <title id=\"title\">{}</title>\n<desc id=\"description\">{}</desc>\n<style>{STYLE}</style>\n\
             <rect class=\"ground\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
            escaped(title),
            escaped(description)
        );
        text(&mut svg, (LEFT, 28.0), "", "start", title);
        text(&mut svg, (LEFT, 46.0), "quiet", "start", "pale bars: 95 % intervals of the bytes");
        for mark in right.marks() {
            let x = right.pixel(mark);
            line(&mut svg, "grid", (x, TOP), (x, BOTTOM));
            text(&mut svg, (x, BOTTOM + 20.0), "quiet", "middle", &shown(mark));
        }
        for mark in up.marks() {
            let y = up.pixel(mark);
            line(&mut svg, "grid", (LEFT, y), (RIGHT, y));
            text(&mut svg, (LEFT - 8.0, y + 4.0), "quiet", "end", &shown(mark));
        }
        line(&mut svg, "axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
        line(&mut svg, "axis", (LEFT, TOP), (LEFT, BOTTOM));
        let scale = if right.is_logarithmic { ", logarithmic" } else { "" };
        let along = format!("body bytes per device and sample (mean{scale})");
        text(&mut svg, (f64::midpoint(LEFT, RIGHT), BOTTOM + 46.0), "", "middle", &along);
        let _ = writeln!(
            svg,
            "<text transform=\"translate(22 {}) rotate(-90)\" text-anchor=\"middle\">loss against the last exit, points</text>",
            f64::midpoint(TOP, BOTTOM)
        );
        self.draw_settings(&mut svg, &right, &up);
        self.draw_targets(&mut svg, &right, &up);
        svg + "</svg>\n"
    }

    fn draw_settings(&self, svg: &mut String, right: &Axis, up: &Axis) {
        let at = |point: &Point| (right.pixel(point.body_bytes), up.pixel(point.loss_points));
        for point in &self.points {
            if let Some([low, high]) = point.interval {
                let y = up.pixel(point.loss_points);
                line(svg, "interval", (right.pixel(low), y), (right.pixel(high), y));
            }
        }
        let corners: Vec<String> =
            self.points.iter().map(at).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(svg, "<polyline class=\"line\" points=\"{}\"/>", corners.join(" "));
        for (x, y) in self.points.iter().map(at) {
            let _ = writeln!(svg, "<circle class=\"point\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>");
        }
    }

    fn draw_targets(&self, svg: &mut String, right: &Axis, up: &Axis) {
        if let Some(bytes) = self.body_bytes.filter(|bytes| right.holds(*bytes)) {
            let x = right.pixel(bytes);
            line(svg, "target", (x, TOP), (x, BOTTOM));
            text(svg, (x, TOP - 6.0), "marked", "middle", &format!("at most {bytes} bytes"));
        }
        if let Some(points) = self.loss_points.filter(|points| up.holds(*points)) {
            let y = up.pixel(points);
            line(svg, "target", (LEFT, y), (RIGHT, y));
            text(svg, (RIGHT - 4.0, y - 6.0), "marked", "end", &format!("at most {points} points"));
        }
        if let Some(Point { body_bytes, loss_points, .. }) = self.chosen {
            let (x, y) = (right.pixel(body_bytes), up.pixel(loss_points));
            let _ = writeln!(svg, "<circle class=\"chosen\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"/>");
            // Above the frontier, whatever its shape, and right of the title.
            let said = format!("chosen: {body_bytes:.1} bytes, {loss_points:.2} points");
            text(svg, (RIGHT, 28.0), "marked", "end", &said);
        }
    }

    fn axis_of_bytes(&self) -> Axis {
        let of_settings = self.points.iter().flat_map(|point| {
            let [low, high] = point.interval.unwrap_or([point.body_bytes; 2]);
            [low, high, point.body_bytes]
        });
        let numbers = of_settings.chain(self.chosen.map(|point| point.body_bytes));
        Axis::around(numbers, self.body_bytes, Scale::ByRange, [LEFT, RIGHT])
    }

    fn axis_of_loss(&self) -> Axis {
        let losses = self.points.iter().chain(&self.chosen).map(|point| point.loss_points);
        Axis::around(losses.chain([0.0]), self.loss_points, Scale::Linear, [BOTTOM, TOP])
    }
}

/// How an axis is divided.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    Linear,
    /// Logarithmic for numbers above 0 that span more than [`LEAST_LOGARITHMIC`].
    ByRange,
}

impl Axis {
    /// An axis that holds all numbers, and a target where that does not make the numbers small.
    fn around(
        numbers: impl Iterator<Item = f64> + Clone,
        target: Option<f64>,
        scale: Scale,
        pixels: [f64; 2],
    ) -> Self {
        let least = numbers.clone().fold(f64::INFINITY, f64::min);
        let most = numbers.fold(f64::NEG_INFINITY, f64::max);
        let (least, most) = if least <= most { (least, most) } else { (0.0, 1.0) };
        let span = (most - least).max(most.abs() * 0.1).max(0.1);
        let near = target.filter(|target| *target >= least - span && *target <= most + span);
        let (least, most) = near.map_or((least, most), |target| (least.min(target), most.max(target)));
        let is_logarithmic = scale == Scale::ByRange && least > 0.0 && most / least > LEAST_LOGARITHMIC;
        let (from, to) = if is_logarithmic {
            (least / 1.15, most * 1.15)
        } else {
            let margin = (most - least).max(span * 0.5) * 0.06;
            (least - margin, most + margin)
        };
        Self { from, to, is_logarithmic, pixels }
    }

    fn holds(&self, number: f64) -> bool {
        (self.from..=self.to).contains(&number)
    }

    fn pixel(&self, number: f64) -> f64 {
        let share = if self.is_logarithmic {
            (number / self.from).ln() / (self.to / self.from).ln()
        } else {
            (number - self.from) / (self.to - self.from)
        };
        self.pixels[0] + share * (self.pixels[1] - self.pixels[0])
    }

    /// Round numbers within the axis.
    fn marks(&self) -> Vec<f64> {
        if self.is_logarithmic {
            let decades = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
            let marks = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|first| first * 10f64.powi(decade)));
            return marks.filter(|mark| self.holds(*mark)).collect();
        }
        let raw = (self.to - self.from) / MARKS;
        let decade = 10f64.powf(raw.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
        let step = steps.into_iter().find(|step| *step >= raw).unwrap_or(10.0 * decade);
        let numbers = (self.from / step).ceil() as i64..=(self.to / step).floor() as i64;
        numbers.map(|number| number as f64 * step).collect()
    }
}

/// A mark in as few digits as it has.
fn shown(mark: f64) -> String {
    let rounded = (mark * 1e6).round() / 1e6;
    // Minus zero is shown as zero.
    (rounded + 0.0).to_string()
}

fn line(svg: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

fn text(svg: &mut String, (x, y): (f64, f64), class: &str, anchor: &str, said: &str) {
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escaped(said)
    );
}

/// Text with the letters that XML takes for its own written as references. Control characters, which no XML can hold, become spaces.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up(bytes: &[f64]) -> Picture {
        let points = bytes.iter().enumerate().map(|(at, bytes)| Point {
            body_bytes: *bytes,
            interval: Some([bytes * 0.98, bytes * 1.02]),
            loss_points: 1.5 - at as f64 * 0.3,
        });
        let points: Vec<Point> = points.collect();
        Picture {
            title: "a <b> & \"c\"\u{7}".to_owned(),
            description: "it's </desc>".to_owned(),
            chosen: points.get(1).copied(),
            points,
            body_bytes: Some(60.0),
            loss_points: Some(0.5),
        }
    }

    /// Names of the elements in the order of their ends. Panics where tags do not fit each other, or text has a letter that must be escaped.
    #[track_caller]
    fn elements(svg: &str) -> Vec<String> {
        let (mut open, mut ended) = (Vec::new(), Vec::new());
        let mut rest = svg.trim_end();
        while let Some(after) = rest.strip_prefix('<') {
            let (tag, following) = after.split_once('>').expect("a tag ends");
            assert!(!tag.contains('<'), "{tag}");
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            let name = |tag: &str| tag.split([' ', '/']).next().unwrap_or_default().to_owned();
            if let Some(closed) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(closed));
                ended.push(closed.to_owned());
            } else if tag.ends_with('/') {
                ended.push(name(tag));
            } else {
                open.push(name(tag));
            }
            let text = &following[..following.find('<').unwrap_or(following.len())];
            assert!(!text.contains(['>', '"']), "{text}");
            assert!(text.matches('&').count() <= text.matches(';').count(), "{text}");
            rest = &following[text.len()..];
        }
        assert!(rest.is_empty() && open.is_empty(), "{rest} {open:?}");
        ended
    }

    #[test]
    fn the_picture_is_well_formed_and_its_text_is_escaped() {
        let svg = made_up(&[40.0, 55.0, 90.0]).svg();
        let elements = elements(&svg);
        assert_eq!(elements.last().map(String::as_str), Some("svg"));
        assert_eq!(
            elements.iter().filter(|name| *name == "circle").count(),
            4,
            "three settings and the chosen one"
        );
        assert!(svg.contains("a &lt;b&gt; &amp; &quot;c&quot; </title>"), "{svg}");
        assert!(svg.contains("it&#39;s &lt;/desc&gt;</desc>") && svg.contains("prefers-color-scheme: dark"));
        assert!(svg.contains("at most 60 bytes") && svg.contains("at most 0.5 points"));
    }

    #[test]
    fn few_settings_and_equal_ones_are_drawn_within_the_picture() {
        for bytes in [&[][..], &[40.0], &[40.0, 40.0, 40.0], &[0.0, 10.0], &[1e-3, 1e6]] {
            let svg = made_up(bytes).svg();
            elements(&svg);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{bytes:?}: {svg}");
        }
    }

    #[test]
    fn bytes_that_span_much_have_a_logarithmic_axis() {
        for (most, is_logarithmic) in [(300.0, false), (400.0, true)] {
            let svg = made_up(&[40.0, most]).svg();
            assert_eq!(svg.contains("logarithmic"), is_logarithmic, "{most}");
        }
        let axis = Axis { from: 30.0, to: 1100.0, is_logarithmic: true, pixels: [0.0, 1.0] };
        assert_eq!(axis.marks(), [50.0, 100.0, 200.0, 500.0, 1000.0]);
        let axis = Axis { from: -0.1, to: 1.04, is_logarithmic: false, pixels: [0.0, 1.0] };
        assert_eq!(
            axis.marks().iter().map(|mark| shown(*mark)).collect::<Vec<_>>(),
            ["0", "0.2", "0.4", "0.6", "0.8", "1"]
        );
    }
}
