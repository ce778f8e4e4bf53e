//! JSON Schemas of the JSON messages, made from their types.

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use crate::policy_command::{DeviceCommand, PolicyAnswer, PolicyCommand};
use crate::{Birth, EdgeStatus, LeaderClaim, ResultMessage, SettledNotice, Status, TriggerMessage};

/// The schema of each JSON message, under the name of its file in `docs/schemas/`.
pub fn schemas() -> [(&'static str, Value); 10] {
    [
        ("trigger", schema::<TriggerMessage>("Message on `trigger`")),
        ("result", schema::<ResultMessage>("Message on `result` or `revision`")),
        ("settled", schema::<SettledNotice>("Message on `settled`")),
        ("leader", schema::<LeaderClaim>("Message on `leader`")),
        ("birth", schema::<Birth>("Message on `dev/{id}/birth`")),
        ("status", schema::<Status>("Message on `dev/{id}/status`")),
        ("edge-status", schema::<EdgeStatus>("Message on `edge/{id}/status`")),
        ("policy", schema::<PolicyCommand>("Message on `policy/{name}`")),
        ("policy-answer", schema::<PolicyAnswer>("Message on `policy/{name}/answer`")),
        ("cmd", schema::<DeviceCommand>("Message on `dev/{id}/cmd`")),
    ]
}

/// Schema of what this version writes: optional fields may be absent, all others are there.
fn schema<T: JsonSchema>(title: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with_transform(PlainText);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".into(), title.into());
    schema.to_value()
}

/// Takes the brackets of rustdoc links out of descriptions, which come from the comments of the types.
#[derive(Clone, Debug)]
struct PlainText;

impl Transform for PlainText {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(Value::String(text)) = schema.get_mut("description") {
            *text = text.replace("[`", "`").replace("`]", "`");
        }
        transform_subschemas(self, schema);
    }
}
