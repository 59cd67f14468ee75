#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "backends/simt/kernels/attention/attention_products_plan.h"
#include "infini_train/core/tensor.h"

/// What the products of attention read and write: heads where they lie, as long as enough of them
/// are equally far apart, and scores in memory that all chunks share.
namespace infini_train::simt {

/// x [B, H, T, D] as [B, KV, T, H / KV, D].
Tensor PositionsOf(const Tensor& x, const ProductsShape& shape);
/// The part of it that a line of heads has.
Tensor PositionsOf(const Tensor& x, const ProductsShape& shape, const HeadLines& lines,
                   std::int64_t line);

/// The lines of heads whose products are large enough, of `scores` each, and copy least, where they
/// read and write tensors [B, H, T, D].
HeadLines LinesFor(const ProductsShape& shape, std::int64_t scores,
                   std::initializer_list<const Tensor*> tensors);

/// The matrices [R, D] of all heads of keys and values.
class HeadMatrices {
 public:
  /// Those of x [B, H, T, D], in place where products of lines of heads can read them, else copied.
  static HeadMatrices Read(const Tensor& x, const ProductsShape& shape, const HeadLines& lines);
  /// The same for what is written, unless it is copied: PutBack() does so.
  static HeadMatrices Write(const Tensor& x, const ProductsShape& shape, const HeadLines& lines);

  /// Rows [first, first + count) of some heads, as [n, count, D].
  Tensor Of(const HeadChunk& heads, std::int64_t first, std::int64_t count) const;
  /// Copies what was written to where it belongs.
  void PutBack() const;

 private:
  HeadMatrices(const Tensor& x, const ProductsShape& shape, const HeadLines& lines);

  Tensor memory_;    ///< [B, KV, T, group, D]
  Tensor original_;  ///< what memory_ is a copy of; undefined where it is none
  std::int64_t row_stride_;
};

/// Memory for the scores of any chunk of the blocks, as elements of `dtype`; `count` times.
std::vector<Tensor> MakeScores(const HeadLines& lines, const std::vector<ScoresBlock>& blocks,
                               int count, DataType dtype, Device device);

/// Matrices [n, rows, keys] of a chunk in that memory, of any smaller type. Rows begin where those
/// of the memory's own type do.
Tensor ScoresOf(const Tensor& memory, const HeadChunk& heads, const ScoresBlock& block,
                DataType dtype);

}  // namespace infini_train::simt
