#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/kernels/norm/norm_row.h"
#include "backends/simt/strided.h"

/// What the kernel of NormGemv is made of: a weight on its way from memory, rows of x that meet it,
/// and outputs. A launch lasts a few microseconds, so that each instruction on the way to the first
/// product counts: what the host can know is an argument.
namespace infini_train::simt {

/// Vectors of a weight's row that a lane takes at a time, neighbours kGroupWidth apart.
inline constexpr int kGemvBatch = 4;
inline constexpr int kGemvBatchVectors = kGemvBatch * kGroupWidth;

/// Memory for sums of batches, and how many, of all rows of x, a block keeps in one half of it
/// before it makes outputs of them.
inline constexpr std::size_t kGemvSumBytes = 4096;
template <typename C>
inline constexpr int kGemvSums = static_cast<int>(kGemvSumBytes / 2 / sizeof(C));

/// How a product is shared out. Blocks have neighbouring outputs, in strips for whose sums there is
/// room; groups of lanes have one batch of a weight's row, of every row or of every few.
struct GemvShare {
  int vectors = 0;        ///< of a row
  int batches = 0;        ///< of a row
  int row_step = 0;       ///< rows that the groups of a block take at a time
  int block_outputs = 0;  ///< of a block
  int larger_blocks = 0;  ///< the first ones, which have one output more
  int strip = 0;          ///< outputs of a strip
  Divider by_batches, by_row_step;

  /// No batches where the rows are too long for the block.
  static GemvShare Of(std::int64_t vectors, std::int64_t outputs, std::int64_t blocks, int lanes,
                      int strip_sums) {
    GemvShare share;
    const int groups = lanes / kGroupWidth;
    const std::int64_t batches = (vectors + kGemvBatchVectors - 1) / kGemvBatchVectors;
    if (batches > std::min(groups, strip_sums)) return share;
    share.vectors = static_cast<int>(vectors);
    share.batches = static_cast<int>(batches);
    share.row_step = groups / share.batches;
    share.block_outputs = static_cast<int>(outputs / blocks);
    share.larger_blocks = static_cast<int>(outputs % blocks);
    share.strip = strip_sums / share.batches;
    share.by_batches = Divider::By(static_cast<std::uint32_t>(share.batches));
    share.by_row_step = Divider::By(static_cast<std::uint32_t>(share.row_step));
    return share;
  }
};

template <typename T>
struct GemvArguments {
  T* out;
  const T* x;
  const T* weight;
  const T* bias;      ///< or null
  const T* residual;  ///< or null
  NormParameter<T> norm;
  bool normalizes;
  int inputs, outputs;
  ComputeType<T> eps;
  GemvShare share;
};

/// The share of the calling lane.
struct GemvLane {
  int first_output, outputs;  ///< of the block
  int batch;
  int first_row;  ///< of a strip
  int vector;     ///< the first one
  int count;      ///< of vectors, kGemvBatch or more if the batch is whole

  SIMT_DEVICE explicit GemvLane(const GemvShare& share) {
    const auto block = static_cast<int>(BlockIndex());
    first_output = block * share.block_outputs + Min(block, share.larger_blocks);
    outputs = share.block_outputs + (block < share.larger_blocks ? 1 : 0);
    const auto group = static_cast<std::uint32_t>(ThreadIndex() / kGroupWidth);
    first_row = static_cast<int>(share.by_batches.Quotient(group));
    batch = static_cast<int>(group) - first_row * share.batches;
    vector = batch * kGemvBatchVectors + GroupLane<kGroupWidth>();
    count = (share.vectors - vector + kGroupWidth - 1) / kGroupWidth;
  }

  /// Outputs of the strip that begins with output `first` of the block.
  SIMT_DEVICE int StripFrom(const GemvShare& share, int first) const {
    return Min(share.strip, outputs - first);
  }
  /// Rows of so many that the lane's group takes, every row_step-th; groups left over take none.
  SIMT_DEVICE int RowsOf(const GemvShare& share, int strip) const {
    if (first_row >= share.row_step || first_row >= strip) return 0;
    return static_cast<int>(
        share.by_row_step.Quotient(static_cast<std::uint32_t>(strip - first_row - 1)) + 1);
  }
};

/// Copies of the weight to a ring in shared memory, in the order in which the lane's group takes
/// rows: strip by strip, of gated products what opens the gate before what it lets through. Each
/// lane copies what it needs itself, and needs no barrier for it.
template <typename T, int N, int kSlots, bool gated>
class GemvCopies {
 public:
  SIMT_DEVICE GemvCopies(const GemvArguments<T>& args, const GemvLane& lane, const Shared<T>& ring)
      : args_(args), lane_(lane), ring_(ring) {
    strip_from_ = args.weight + std::int64_t{lane.first_output + lane.first_row} * args.inputs +
                  lane.vector * N;
    from_ = strip_from_;
    rows_ = lane.RowsOf(args.share, lane.StripFrom(args.share, 0));
    left_ = rows_;
  }

  /// Elements of the ring.
  SIMT_DEVICE static int Elements() { return kSlots * SlotElements(); }
  /// Slots by their first elements.
  SIMT_DEVICE static int SlotAt(int i) { return i * SlotElements(); }
  SIMT_DEVICE static int After(int slot) {
    return slot + SlotElements() < Elements() ? slot + SlotElements() : 0;
  }

  /// Whether all has been asked for.
  SIMT_DEVICE bool Ended() const { return left_ == 0; }

  /// Asks for the next batch, if there is one.
  SIMT_DEVICE void Ask(int slot) {
    if (!Ended()) {
      SIMT_UNROLL
      for (int j = 0; j < kGemvBatch; ++j) {
        if (j < lane_.count) CopyAsync<N>(ring_, At(slot, j), from_ + j * kGroupWidth * N);
      }
      from_ += std::int64_t{args_.share.row_step} * args_.inputs;
      if (--left_ == 0) BeginStrip();
    }
    CommitCopies();
  }

  /// Adds the products of vector j of what has come to a slot and rows of x in `input`.
  template <int kRows>
  SIMT_DEVICE void AddProducts(int slot, int j, const Shared<T>& input,
                               ComputeType<T> (&sums)[kRows]) const {
    using C = ComputeType<T>;
    C w[N];
    Packed<T, N>(ring_.template Load<N>(At(slot, j))).Widen(w);
    SIMT_UNROLL
    for (int m = 0; m < kRows; ++m) {
      C x[N];
      const int at = m * args_.inputs + (lane_.vector + j * kGroupWidth) * N;
      Packed<T, N>(input.template Load<N>(at)).Widen(x);
      SIMT_UNROLL
      for (int k = 0; k < N; ++k)
        sums[m] += w[k] * x[k];
    }
  }

 private:
  SIMT_DEVICE static int SlotElements() { return kGemvBatch * BlockSize() * N; }
  SIMT_DEVICE static int At(int slot, int j) {
    return slot + (j * BlockSize() + ThreadIndex()) * N;
  }

  SIMT_DEVICE void BeginStrip() {
    if (gated && !second_part_) {
      second_part_ = true;
      from_ = strip_from_ + std::int64_t{args_.outputs} * args_.inputs;
    } else {
      second_part_ = false;
      first_ += args_.share.strip;
      strip_from_ += std::int64_t{args_.share.strip} * args_.inputs;
      from_ = strip_from_;
      rows_ = lane_.RowsOf(args_.share, lane_.StripFrom(args_.share, first_));
    }
    left_ = rows_;
  }

  const GemvArguments<T>& args_;
  const GemvLane& lane_;
  Shared<T> ring_;
  const T* strip_from_;
  const T* from_;
  int first_ = 0;  ///< output of the strip
  int rows_;       ///< of a part of the strip
  int left_;
  bool second_part_ = false;
};

/// Rows of x, normalised and rounded as the op RmsNorm does, through shared memory to the lanes
/// that need them.
template <typename T, int N, int kRows>
class GemvInput {
 public:
  using C = ComputeType<T>;

  /// Reads the norm's weights for the lane's first vector.
  SIMT_DEVICE explicit GemvInput(const GemvArguments<T>& args) : args_(args) {
    if (args.normalizes && ThreadIndex() < args.share.vectors)
      args.norm.template Read<N>(ThreadIndex() * N, first_weights_);
  }

  /// Puts all of x into `input`, [kRows, inputs].
  SIMT_DEVICE void Stage(const Shared<T>& input) const {
    SIMT_SHARED(C, partial, kRows * (kMaxBlockSize / kGroupWidth));
    C sums[kRows] = {};
    for (int v = ThreadIndex(); v < args_.share.vectors; v += BlockSize()) {
      Packed<T, N> vectors[kRows];
      SIMT_UNROLL
      for (int m = 0; m < kRows; ++m)
        vectors[m] = Packed<T, N>::Of(args_.x + std::int64_t{m} * args_.inputs + v * N);
      SIMT_UNROLL
      for (int m = 0; m < kRows; ++m) {
        input.template Store<N>(m * args_.inputs + v * N, vectors[m].Unpack());
        C numbers[N];
        vectors[m].Widen(numbers);
        for (int k = 0; k < N; ++k)
          sums[m] += numbers[k] * numbers[k];
      }
    }
    if (!args_.normalizes) {
      SyncBlock();
      return;
    }
    SIMT_UNROLL
    for (int m = 0; m < kRows; ++m) {
      const C sum = ReduceGroup<kGroupWidth>(sums[m], SumOp{});
      if (GroupLane<kGroupWidth>() == 0) partial[ThreadIndex() / kGroupWidth * kRows + m] = sum;
    }
    SyncBlock();
    if (ThreadIndex() < args_.share.vectors) Normalize(input, partial);
    SyncBlock();
  }

 private:
  /// The lane's vectors, by the sums of squares of all groups, [groups, kRows].
  SIMT_DEVICE void Normalize(const Shared<T>& input, const Shared<C>& partial) const {
    C rstd[kRows];
    for (int m = 0; m < kRows; ++m) {
      C sum = 0;
      for (int group = 0; group < BlockSize() / kGroupWidth; ++group) {
        const C next = partial[group * kRows + m];
        sum += next;
      }
      rstd[m] = C(1) / Sqrt(sum / static_cast<C>(args_.inputs) + args_.eps);
    }
    for (int v = ThreadIndex(); v < args_.share.vectors; v += BlockSize()) {
      C weights[N];
      if (v == ThreadIndex()) {
        for (int k = 0; k < N; ++k)
          weights[k] = first_weights_[k];
      } else {
        args_.norm.template Read<N>(v * N, weights);
      }
      for (int m = 0; m < kRows; ++m) {
        const int at = m * args_.inputs + v * N;
        C numbers[N];
        Packed<T, N>(input.template Load<N>(at)).Widen(numbers);
        Vec<T, N> normalized;
        for (int k = 0; k < N; ++k)
          normalized[k] = FromCompute<T>(numbers[k] * rstd[m] * weights[k]);
        input.template Store<N>(at, normalized);
      }
    }
  }

  const GemvArguments<T>& args_;
  C first_weights_[N] = {};
};

/// Sums of a strip's batches, [parts, strip, batches] for each row of x, and the outputs that they
/// make.
template <typename T, int kRows, bool gated>
class GemvOutputs {
 public:
  using C = ComputeType<T>;
  static constexpr int kParts = gated ? 2 : 1;
  /// Of a part of a strip, for each row of x.
  static constexpr int kStripSums = kGemvSums<C> / kRows / kParts;

  SIMT_DEVICE GemvOutputs(const GemvArguments<T>& args, const GemvLane& lane)
      : args_(args), lane_(lane) {}

  /// What is added to the lane's first one of the outputs from `first` on, which it so need not
  /// wait for later.
  SIMT_DEVICE void ReadAddends(int first) {
    if (ThreadIndex() < Items(first)) addends_ = AddendsOf(first, ThreadIndex());
  }

  /// Where sums of a part's row of the strip are kept.
  SIMT_DEVICE int At(int part, int row, int batch) const {
    return part * kStripSums + row * args_.share.batches + batch;
  }

  /// Keeps what the group has for a batch.
  SIMT_DEVICE void Keep(const Shared<C>& sums, int at, const C (&products)[kRows]) const {
    SIMT_UNROLL
    for (int m = 0; m < kRows; ++m) {
      const C sum = ReduceGroup<kGroupWidth>(products[m], SumOp{});
      if (GroupLane<kGroupWidth>() == 0) sums[m * (kStripSums * kParts) + at] = sum;
    }
  }

  /// Writes the outputs from `first` on.
  SIMT_DEVICE void Write(const Shared<C>& sums, int first) const {
    for (int item = ThreadIndex(); item < Items(first); item += BlockSize()) {
      const Addends addends = item == ThreadIndex() ? addends_ : AddendsOf(first, item);
      const int m = item % kRows;
      C result = SumOf(sums, m, 0, item / kRows) + addends.bias[0];
      if constexpr (gated)
        result = Silu<T>(result) * (SumOf(sums, m, 1, item / kRows) + addends.bias[1]);
      Store(args_.out + std::int64_t{m} * args_.outputs + OutputOf(first, item),
            FromCompute<T>(result + addends.residual));
    }
  }

 private:
  struct Addends {
    C bias[kParts] = {};
    C residual = 0;
  };

  /// Pairs of an output and a row of x.
  SIMT_DEVICE int Items(int first) const { return lane_.StripFrom(args_.share, first) * kRows; }
  SIMT_DEVICE int OutputOf(int first, int item) const {
    return lane_.first_output + first + item / kRows;
  }
  SIMT_DEVICE Addends AddendsOf(int first, int item) const {
    Addends addends;
    const int output = OutputOf(first, item);
    SIMT_UNROLL
    for (int part = 0; args_.bias != nullptr && part < kParts; ++part)
      addends.bias[part] = ToCompute(Load(args_.bias + output + part * args_.outputs));
    if (args_.residual != nullptr) {
      addends.residual =
          ToCompute(Load(args_.residual + std::int64_t{item % kRows} * args_.outputs + output));
    }
    return addends;
  }
  SIMT_DEVICE C SumOf(const Shared<C>& sums, int m, int part, int row) const {
    C sum = 0;
    for (int batch = 0; batch < args_.share.batches; ++batch) {
      const C next = sums[m * (kStripSums * kParts) + At(part, row, batch)];
      sum += next;
    }
    return sum;
  }

  const GemvArguments<T>& args_;
  const GemvLane& lane_;
  Addends addends_;
};

}  // namespace infini_train::simt
