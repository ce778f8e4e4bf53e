//! Matrix products and the fully connected layer, on one thread.

use burn::tensor::Tensor;

use super::{flex, operand, record, slice_of};

/// A dense matrix, read by rows or, transposed, by columns.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_step: usize,
    column_step: usize,
}

impl<'a> Matrix<'a> {
    /// `values` as rows of `columns` numbers.
    pub(super) fn rows(values: &'a [f32], columns: usize) -> Self {
        Self { values, rows: values.len() / columns, columns, row_step: columns, column_step: 1 }
    }

    /// The transpose of [`Matrix::rows`] with rows of `length` numbers.
    pub(super) fn columns(values: &'a [f32], length: usize) -> Self {
        Self { values, rows: length, columns: values.len() / length, row_step: 1, column_step: length }
    }
}

/// Effect of a product on the contents of `out`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    /// `out = a b`.
    Set,
    /// `out += a b`.
    Add,
}

/// The matrix product `a b`, stored in the row-major `out`.
///
/// # Panics
/// When the sizes do not fit together.
pub(super) fn product(a: Matrix<'_>, b: Matrix<'_>, out: &mut [f32], write: Write) {
    let (m, k, n) = (a.rows, a.columns, b.columns);
    assert_eq!((k, m * n), (b.rows, out.len()), "product of {m}x{k} and {}x{n} into {}", b.rows, out.len());
    assert!(a.values.len() == m * k && b.values.len() == k * n);
    if m * n == 0 {
        return;
    }
    // SAFETY: by the asserts above the slices hold `m x k`, `k x n` and `m x n` elements, and the steps stay inside the slices by
    // construction; `out` is borrowed mutably, so nothing else reads `out`.
    #[expect(unsafe_code, reason = "gemm takes raw pointers")]
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n as isize,
            write == Write::Add,
            a.values.as_ptr(),
            a.column_step as isize,
            a.row_step as isize,
            b.values.as_ptr(),
            b.column_step as isize,
            b.row_step as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Fully connected layer without bias, `x weight^T`.
///
/// # Shapes
/// - `x`: `[batch, inputs]`; `weight`: `[outputs, inputs]`; returns `[batch, outputs]`
pub fn linear(x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    let ([batch, inputs], [outputs, _]) = (x.dims(), weight.dims());
    let ((x, x_node), (weight, weight_node)) = (operand(x), operand(weight));
    let mut y = vec![0.0; batch * outputs];
    let transposed = Matrix::columns(slice_of(&weight), inputs);
    product(Matrix::rows(slice_of(&x), inputs), transposed, &mut y, Write::Set);
    let y = flex(y, [batch, outputs]);
    record([x_node, weight_node], y, move |dy, [wants_x, wants_weight]| {
        let dx = wants_x.then(|| {
            let mut dx = vec![0.0; batch * inputs];
            let weight = Matrix::rows(slice_of(&weight), inputs);
            product(Matrix::rows(dy, outputs), weight, &mut dx, Write::Set);
            flex(dx, [batch, inputs])
        });
        let dw = wants_weight.then(|| {
            let mut dw = vec![0.0; outputs * inputs];
            let x = Matrix::rows(slice_of(&x), inputs);
            product(Matrix::columns(dy, outputs), x, &mut dw, Write::Set);
            flex(dw, [outputs, inputs])
        });
        [dx, dw]
    })
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution, Gradients};

    use super::*;
    use crate::fused::testing::{assert_equal, gradient};

    /// Tolerance for sums of seven products of order one, added in another order.
    const SUM_ORDER: f32 = 1e-5;

    #[test]
    fn a_fully_connected_layer_and_its_gradients_equal_burns() {
        let device = Device::flex().autodiff();
        let x = Tensor::<2>::random([5, 7], Distribution::Default, &device).require_grad();
        let weight = Tensor::<2>::random([3, 7], Distribution::Default, &device).require_grad();
        let ours = linear(x.clone(), weight.clone());
        let burns = x.clone().matmul(weight.clone().transpose());
        let inputs = |of: &Gradients| [gradient(&x, of), gradient(&weight, of)].concat();
        assert_equal([ours, burns], inputs, SUM_ORDER);
    }
}
