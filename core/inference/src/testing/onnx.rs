//! ONNX files, built node by node.

use prost::Message;
use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto, type_proto,
};

/// A graph with one input `x` of shape `[N, …]`.
#[derive(Clone, Debug)]
pub struct OnnxGraph {
    graph: GraphProto,
}

impl OnnxGraph {
    /// An empty graph; `shape` is the shape of one sample.
    pub fn new(shape: &[usize]) -> Self {
        Self::of(DataType::Float, shape)
    }

    /// As [`OnnxGraph::new`], with `u8` as input.
    pub fn of_bytes(shape: &[usize]) -> Self {
        Self::of(DataType::Uint8, shape)
    }

    fn of(kind: DataType, shape: &[usize]) -> Self {
        let input = vec![value_info("x", kind, Some(shape))];
        Self { graph: GraphProto { name: "section".into(), input, ..GraphProto::default() } }
    }

    /// Adds a constant of `f32` and returns its name.
    pub fn constant(&mut self, shape: &[usize], values: Vec<f32>) -> String {
        let name = format!("c{}", self.graph.initializer.len());
        self.graph.initializer.push(TensorProto {
            dims: shape.iter().map(|&n| n as i64).collect(),
            data_type: DataType::Float as i32,
            float_data: values,
            name: name.clone(),
            ..TensorProto::default()
        });
        name
    }

    /// Adds a constant of `i8` or `u8` and returns its name.
    pub fn constant_bytes(&mut self, is_signed: bool, shape: &[usize], values: Vec<u8>) -> String {
        let name = format!("c{}", self.graph.initializer.len());
        self.graph.initializer.push(TensorProto {
            dims: shape.iter().map(|&n| n as i64).collect(),
            data_type: if is_signed { DataType::Int8 } else { DataType::Uint8 } as i32,
            raw_data: values,
            name: name.clone(),
            ..TensorProto::default()
        });
        name
    }

    /// Adds a node with integer attributes and returns the name of its output.
    pub fn node(&mut self, op: &str, inputs: &[&str], attributes: &[(&str, &[i64])]) -> String {
        let name = format!("n{}", self.graph.node.len());
        self.graph.node.push(NodeProto {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: vec![name.clone()],
            name: name.clone(),
            op_type: op.into(),
            attribute: attributes.iter().map(|&(name, values)| attribute(name, values)).collect(),
            ..NodeProto::default()
        });
        name
    }

    /// Convolution with weights of shape `[out, in, rows, columns]` from `weight`, padded by 1 so that 3x3 keeps the size.
    pub fn conv(
        &mut self,
        x: &str,
        shape: [usize; 4],
        weight: &mut dyn FnMut() -> f32,
        stride: i64,
    ) -> String {
        let weights = self.random(&shape, weight);
        let bias = self.random(&shape[..1], weight);
        self.node("Conv", &[x, &weights, &bias], &[("pads", &[1; 4]), ("strides", &[stride; 2])])
    }

    /// Max pool 3x3, stride 2, pad 1.
    pub fn max_pool(&mut self, x: &str) -> String {
        let attributes: [(&str, &[i64]); 3] =
            [("kernel_shape", &[3; 2]), ("pads", &[1; 4]), ("strides", &[2; 2])];
        self.node("MaxPool", &[x], &attributes)
    }

    /// `x >= 0 ? 1 : -1`, in the form that training exports: `2 * relu(1 - relu(-1e30 * x)) - 1`.
    pub fn sign(&mut self, x: &str) -> String {
        let [steep, one, two] = [-1e30, 1.0, 2.0].map(|value| self.constant(&[1], vec![value]));
        let x = self.node("Mul", &[x, &steep], &[]);
        let x = self.node("Relu", &[&x], &[]);
        let x = self.node("Sub", &[&one, &x], &[]);
        let x = self.node("Relu", &[&x], &[]);
        let x = self.node("Mul", &[&x, &two], &[]);
        self.node("Sub", &[&x, &one], &[])
    }

    /// Flattens and applies a fully connected layer with weights `[out, in]`.
    pub fn linear(&mut self, x: &str, shape: [usize; 2], weight: &mut dyn FnMut() -> f32) -> String {
        let x = self.node("Flatten", &[x], &[]);
        let weights = self.random(&shape, weight);
        let bias = self.random(&shape[..1], weight);
        self.node("Gemm", &[&x, &weights, &bias], &[("transB", &[1])])
    }

    /// The file, with these outputs.
    pub fn finish(self, outputs: &[&str]) -> Vec<u8> {
        self.finish_as(DataType::Float, outputs)
    }

    /// The file, with these outputs of `u8`.
    pub fn finish_bytes(self, outputs: &[&str]) -> Vec<u8> {
        self.finish_as(DataType::Uint8, outputs)
    }

    fn finish_as(mut self, kind: DataType, outputs: &[&str]) -> Vec<u8> {
        self.graph.output = outputs.iter().map(|output| value_info(output, kind, None)).collect();
        let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 18 }];
        let model =
            ModelProto { ir_version: 8, opset_import, graph: Some(self.graph), ..ModelProto::default() };
        model.encode_to_vec()
    }

    fn random(&mut self, shape: &[usize], weight: &mut dyn FnMut() -> f32) -> String {
        let values = (0..shape.iter().product()).map(|_| weight()).collect();
        self.constant(shape, values)
    }
}

fn attribute(name: &str, values: &[i64]) -> AttributeProto {
    let mut attribute = AttributeProto { name: name.into(), ..AttributeProto::default() };
    match values {
        [value] => {
            attribute.set_type(AttributeType::Int);
            attribute.i = *value;
        }
        _ => {
            attribute.set_type(AttributeType::Ints);
            attribute.ints = values.to_vec();
        }
    }
    attribute
}

/// A tensor of shape `[N, …]`, or of a shape left open.
fn value_info(name: &str, kind: DataType, shape: Option<&[usize]>) -> ValueInfoProto {
    let shape = shape.map(|shape| {
        let batch = dimension::Value::DimParam("N".into());
        let sizes = shape.iter().map(|&n| dimension::Value::DimValue(n as i64));
        let dims = std::iter::once(batch).chain(sizes);
        TensorShapeProto {
            dim: dims.map(|value| Dimension { value: Some(value), ..Default::default() }).collect(),
        }
    });
    let tensor = type_proto::Tensor { elem_type: kind as i32, shape };
    let r#type =
        Some(TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() });
    ValueInfoProto { name: name.into(), r#type, ..ValueInfoProto::default() }
}
