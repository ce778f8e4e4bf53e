//! A small ONNX writer with the nodes that our layers need and a free batch dimension `N`.
//!
//! Opset 17; signs are `Where(GreaterOrEqual(x, 0), 1, -1)`, which ONNX Runtime and tract both run. Weights are stored raw, little endian.

use prost::Message;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto, attribute_proto::AttributeType, type_proto,
};

use crate::fused::Folded;
use headwater_spec::{Activation, Window};

const IR_VERSION: i64 = 8;
const OPSET: i64 = 17;

/// A value in a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value(String);

/// An ONNX graph under construction.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    graph: GraphProto,
    names: usize,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: &str) -> Self {
        Self { graph: GraphProto { name: name.to_owned(), ..Default::default() }, names: 0 }
    }

    /// An input `[N, shape..]` of floats.
    pub fn input(&mut self, name: &str, shape: &[usize]) -> Value {
        self.graph.input.push(described(name, shape));
        Value(name.to_owned())
    }

    /// Makes `value` the output `name`, `[N, shape..]`.
    pub fn output(&mut self, name: &str, value: &Value, shape: &[usize]) {
        self.push("Identity", name.to_owned(), &[value], vec![]);
        self.graph.output.push(described(name, shape));
    }

    /// A constant tensor.
    ///
    /// # Panics
    /// Unless the shape has as many elements as there are values.
    pub fn constant(&mut self, shape: &[usize], values: &[f32]) -> Value {
        assert_eq!(
            shape.iter().product::<usize>(),
            values.len(),
            "a constant has as many values as its shape"
        );
        self.initializer(
            shape,
            DataType::Float,
            values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        )
    }

    /// A constant tensor of raw numbers, little endian.
    fn initializer(&mut self, shape: &[usize], data_type: DataType, raw_data: Vec<u8>) -> Value {
        let (name, dims) = (self.name(), shape.iter().map(|n| *n as i64).collect());
        let (data_type, tensor) = (data_type as i32, TensorProto::default());
        self.graph.initializer.push(TensorProto { name: name.clone(), dims, data_type, raw_data, ..tensor });
        Value(name)
    }

    /// Folded batch norm: `x * scale + shift` per channel of an input of `rank` dimensions, then the activation.
    pub fn norm(&mut self, x: &Value, norm: &Folded, rank: usize) -> Value {
        let mut shape = vec![1; rank];
        shape[1] = norm.scale.len();
        let (scale, shift) = (self.constant(&shape, &norm.scale), self.constant(&shape, &norm.shift));
        let scaled = self.node("Mul", &[x, &scale], vec![]);
        let y = self.node("Add", &[&scaled, &shift], vec![]);
        self.activation(y, norm.activation)
    }

    /// The first channels of `x`.
    pub fn first_channels(&mut self, x: &Value, channels: usize) -> Value {
        let [start, end, axis] = [0, channels as i64, 1]
            .map(|number: i64| self.initializer(&[1], DataType::Int64, number.to_le_bytes().to_vec()));
        self.node("Slice", &[x, &start, &end, &axis], vec![])
    }

    /// Applies an activation to `x`.
    pub fn activation(&mut self, x: Value, activation: Activation) -> Value {
        match activation {
            Activation::None => x,
            Activation::Relu => self.node("Relu", &[&x], vec![]),
            Activation::Sign => self.sign(&x),
        }
    }

    /// `x >= 0 -> +1`, else `-1`.
    fn sign(&mut self, x: &Value) -> Value {
        let (zero, plus, minus) =
            (self.constant(&[], &[0.0]), self.constant(&[], &[1.0]), self.constant(&[], &[-1.0]));
        let positive = self.node("GreaterOrEqual", &[x, &zero], vec![]);
        self.node("Where", &[&positive, &plus, &minus], vec![])
    }

    /// The graph as an ONNX file.
    pub fn finish(self) -> Vec<u8> {
        let model = ModelProto {
            ir_version: IR_VERSION,
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
            producer_name: "headwater-train".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            graph: Some(self.graph),
            ..Default::default()
        };
        model.encode_to_vec()
    }

    /// Adds a node of the ONNX operator `kind`, and returns its output.
    pub(crate) fn node(&mut self, kind: &str, inputs: &[&Value], attributes: Vec<AttributeProto>) -> Value {
        let name = self.name();
        self.push(kind, name.clone(), inputs, attributes);
        Value(name)
    }

    fn push(&mut self, kind: &str, output: String, inputs: &[&Value], attribute: Vec<AttributeProto>) {
        self.graph.node.push(NodeProto {
            name: format!("{kind}-{output}"),
            op_type: kind.to_owned(),
            input: inputs.iter().map(|value| value.0.clone()).collect(),
            output: vec![output],
            attribute,
            ..Default::default()
        });
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }
}

/// Attributes of a zero-padded `Conv`, or of a `MaxPool` or `AveragePool`, which ignore padding.
pub(crate) fn windowed(window: Window) -> Vec<AttributeProto> {
    let Window { kernel, stride, pad } = window;
    [("kernel_shape", vec![kernel; 2]), ("strides", vec![stride; 2]), ("pads", vec![pad; 4])]
        .map(|(name, values)| integers(name, &values))
        .to_vec()
}

fn integers(name: &str, values: &[usize]) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        r#type: AttributeType::Ints as i32,
        ints: values.iter().map(|value| *value as i64).collect(),
        ..Default::default()
    }
}

pub(crate) fn integer(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        r#type: AttributeType::Int as i32,
        i: value,
        ..Default::default()
    }
}

fn described(name: &str, shape: &[usize]) -> ValueInfoProto {
    let dimension = |value| Dimension { value: Some(value), ..Default::default() };
    let batch = dimension(dimension::Value::DimParam("N".into()));
    let sizes = shape.iter().map(|n| dimension(dimension::Value::DimValue(*n as i64)));
    let shape = TensorShapeProto { dim: std::iter::once(batch).chain(sizes).collect() };
    let tensor = type_proto::Tensor { elem_type: DataType::Float as i32, shape: Some(shape) };
    let r#type = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(r#type), ..Default::default() }
}
