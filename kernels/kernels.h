// Kernels as pure functions over plain argument structs: no allocation, no threads, no printing.
// The order of summation of one output element depends on nothing but its own row, so the caller
// may split rows and outputs over threads and batches as it likes without changing a bit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lookback::kernels {

/// Element type of weights and, the first two, of cached keys and values. Quantized weights lie in
/// groups of 32 along a row, each with an f16 scale; a row that is no multiple ends in a short
/// group.
enum class Element : uint8_t {
  kF32,
  kBF16,
  kQ8,  ///< int8: q · scale
  kQ4,  ///< 16 bytes a group, short or not: byte i holds value i (low nibble) and value i + 16;
        ///< (nibble − 8) · scale
};

inline constexpr int64_t kQuantGroup = 32;
inline constexpr int64_t kQ4GroupBytes = 16;

constexpr bool IsQuantized(Element type) { return type == Element::kQ8 || type == Element::kQ4; }
/// Scales of a row of `k` quantized weights.
constexpr int64_t QuantGroups(int64_t k) { return (k + kQuantGroup - 1) / kQuantGroup; }
/// Bytes of a row of `k` elements, its scales apart.
constexpr int64_t RowBytes(Element type, int64_t k) {
  switch (type) {
    case Element::kF32:
      return k * 4;
    case Element::kBF16:
      return k * 2;
    case Element::kQ8:
      return k;
    case Element::kQ4:
      return QuantGroups(k) * kQ4GroupBytes;
  }
  return 0;
}

/// A matrix of weights, [rows][k], its rows one after another.
struct WeightView {
  const void* data = nullptr;
  Element type = Element::kF32;
  const uint16_t* scale = nullptr;  ///< quantized types: f16, [rows][QuantGroups(k)]
};

/// y[r][o] = bias[o] + sum_k x[r][k] · w[o][k], for all rows and o in [out_begin, out_end).
/// y may not alias x.
struct GemmArgs {
  const float* x;     ///< [rows][x_stride], the first k of a row are used
  int64_t x_stride;   ///< floats
  WeightView w;       ///< [out][k]
  const float* bias;  ///< [out], or null
  float* y;           ///< [rows][y_stride]
  int64_t y_stride;   ///< floats
  int64_t rows;
  int64_t k;
  int64_t out_begin;
  int64_t out_end;
};

/// Rounded rows may lie so many together, in steps of so many values.
inline constexpr int64_t kRoundedRows = 16;
inline constexpr int64_t kRoundedStep = 32;

/// Values that there must be room for.
constexpr int64_t RoundedValues(int64_t rows, int64_t k) {
  return rows * ((k + kRoundedStep - 1) / kRoundedStep * kRoundedStep);
}

/// x rounded to bf16, to nearest, ties to even; NaN stays NaN. The same bits in every set.
struct RoundRowsArgs {
  const float* x;    ///< [rows][x_stride], the first k of a row are used
  int64_t x_stride;  ///< floats
  uint16_t* out;     ///< as bf16_gemm of the same set reads it; in order where there is one row
  int64_t k;
  int64_t rows;
  int64_t row_begin;  ///< a multiple of kRoundedRows
  int64_t row_end;    ///< likewise, or rows
};

/// What GemmArgs says, of x and w in bf16, summed in f32. A product or a sum that is subnormal may
/// count as zero.
struct BF16GemmArgs {
  const uint16_t* x;  ///< what round_rows made of [rows][k]
  WeightView w;       ///< kBF16, [out][k]
  const float* bias;  ///< [out], or null
  float* y;           ///< [rows][y_stride]
  int64_t y_stride;   ///< floats
  int64_t rows;
  int64_t k;
  int64_t out_begin;
  int64_t out_end;
};

/// Rows of activations as integers of 8 bits in groups of kQuantGroup, a short last group with
/// zeros behind it: x = q · scale, |q| <= 127.
struct QuantizedRows {
  int8_t* q = nullptr;     ///< [rows][QuantGroups(k) · kQuantGroup]
  float* scale = nullptr;  ///< [rows][QuantGroups(k)]
  int32_t* sum = nullptr;  ///< [rows][QuantGroups(k)]: of the group's q
};

/// Groups whose largest |x| is below this count as zeros: 127 over it would not be finite.
inline constexpr float kLeastQuantized = 1e-30F;

/// scale = largest |x| of the group / 127, q = x · (127 / largest |x|) to the nearest, ties to
/// even. A group that is not finite has the scale NaN and zeros. The same bits in every set.
struct QuantizeRowsArgs {
  const float* x;    ///< [rows][x_stride], the first k of a row are used
  int64_t x_stride;  ///< floats
  QuantizedRows out;
  int64_t k;
  int64_t row_begin;
  int64_t row_end;
};

/// y[r][o] = bias[o] + sum over the groups g of (sum_i x.q · w.q) · (x.scale[g] · w.scale[g]), the
/// inner sum exact, for all rows and o in [out_begin, out_end). w is kQ8 or kQ4.
struct IntegerGemmArgs {
  QuantizedRows x;    ///< of k columns
  WeightView w;       ///< [out][k]
  const float* bias;  ///< [out], or null
  float* y;           ///< [rows][y_stride]
  int64_t y_stride;   ///< floats
  int64_t rows;
  int64_t k;
  int64_t out_begin;
  int64_t out_end;
};

/// out[r] = table[ids[r]], widened; with a table of positions, + positions[position[r]].
struct EmbedArgs {
  WeightView table;         ///< [vocab][width]
  const int32_t* ids;       ///< [rows], each in [0, vocab)
  WeightView positions;     ///< [context][width], or no data
  const int64_t* position;  ///< [rows], each in [0, context)
  float* out;               ///< [rows][width]
  int64_t width;
  int64_t row_begin;
  int64_t row_end;
};

/// y[r] = x[r] / sqrt(mean(x[r]²) + eps) · weight. A row may be one head of a token. y may be x.
struct RmsNormArgs {
  const float* x;
  int64_t x_stride;     ///< floats between rows
  const float* weight;  ///< [width]
  float* y;
  int64_t y_stride;
  int64_t width;
  float eps;
  int64_t row_begin;
  int64_t row_end;
};

/// y[r] = (x[r] − mean) / sqrt(variance + eps) · weight + bias, the variance biased (divided by
/// width). y may be x.
struct LayerNormArgs {
  const float* x;
  const float* weight;  ///< [width]
  const float* bias;    ///< [width]
  float* y;
  int64_t width;  ///< also the row stride of x and y
  float eps;
  int64_t row_begin;
  int64_t row_end;
};

/// inverse[r] = 1 / sqrt(mean(x[r]²) + eps).
struct InverseRmsArgs {
  const float* x;
  int64_t x_stride;
  float* inverse;  ///< [rows]
  int64_t width;
  float eps;
  int64_t row_begin;
  int64_t row_end;
};

/// y[r][i] += x[r][i].
struct AddArgs {
  const float* x;
  float* y;
  int64_t width;  ///< also the row stride of both
  int64_t row_begin;
  int64_t row_end;
};

/// cosine[r][i] = cos(position[r] · frequency[i]), likewise sine; the product and the functions in
/// f32.
struct RopeTableArgs {
  const int64_t* position;  ///< [rows]
  const float* frequency;   ///< [half]
  float* cosine;            ///< [rows][half]
  float* sine;              ///< [rows][half]
  int64_t half;             ///< head_dim / 2
  int64_t row_begin;
  int64_t row_end;
};

/// Rotates every head of every row in place, half-rotation layout: element i pairs with i + half.
struct RopeArgs {
  float* x;  ///< [rows][stride], heads · 2 · half used
  int64_t stride;
  const float* cosine;  ///< [rows][half]
  const float* sine;
  int64_t heads;
  int64_t half;
  int64_t row_begin;
  int64_t row_end;
};

/// out[r][i] = silu(gate[r][i]) · up[r][i]. out may be gate or up.
struct SwigluArgs {
  const float* gate;
  const float* up;
  float* out;
  int64_t width;  ///< also the row stride of all three
  int64_t row_begin;
  int64_t row_end;
};

/// x[r][i] = gelu(x[r][i]) in place, the exact form: x/2 · (1 + erf(x/√2)).
struct GeluArgs {
  float* x;
  int64_t width;  ///< also the row stride
  int64_t row_begin;
  int64_t row_end;
};

/// out[r][i] = sum over n of weights[n] · source n[r][i], in ascending order of n. out may not
/// alias a source.
struct CombineArgs {
  const float* sources;   ///< source n of row r at sources + n · source_stride + r · width
  int64_t source_stride;  ///< floats
  const float* weights;   ///< [num_sources]
  int64_t num_sources;    ///< at least 1
  float* out;             ///< [rows][width]
  int64_t width;
  int64_t row_begin;
  int64_t row_end;
};

/// A gate between the state before a read and what was read (mhar.md section 3, "Gates"):
///   read[r][i] = (1 − a) · state[r][i] + a · read[r][i],
/// a = sigmoid(logits[r][i]) where there are logits, else alpha.
struct GateArgs {
  const float* state;
  const float* logits;  ///< [rows][width], or null
  float alpha;
  float* read;    ///< in place
  int64_t width;  ///< also the row stride of all
  int64_t row_begin;
  int64_t row_end;
};

/// Where the keys and values of one (sequence, layer, KV head) lie. Block b holds the tokens
/// [b · block_tokens, (b+1) · block_tokens): id = b < sink_blocks ? sinks[b] : ring[b % ring_size].
struct BlockList {
  const int32_t* sinks;
  const int32_t* ring;
  int64_t sink_blocks;
  int64_t ring_size;
};

/// The pool of equal blocks. One block: keys [block_tokens][head_dim], then values likewise.
struct KvPool {
  std::byte* data;
  int64_t block_bytes;
  int64_t block_tokens;
  int64_t head_dim;
  Element type;
};

/// Which sequences the rows of a step belong to.
struct RowMap {
  const BlockList* const*
      lists;  ///< [sequence in the step] → that sequence's lists of this layer, [kv_heads]
  int64_t list_offset;      ///< added to each of them: layer · kv_heads
  const int32_t* sequence;  ///< [rows] index into lists
  const int64_t* position;  ///< [rows] absolute position of the row's token
};

/// Stores the keys and values of new tokens in their blocks, in the pool's type (bf16 to nearest
/// even).
struct KvWriteArgs {
  KvPool pool;
  RowMap map;
  const float* k;  ///< [rows][kv_heads · head_dim]
  const float* v;
  int64_t stride;  ///< floats between rows of k and of v
  int64_t kv_heads;
  int64_t row_begin;
  int64_t row_end;
};

/// A query head sees key j from position i iff j <= i and (j < sinks or j > i − window).
struct HeadReach {
  int64_t window;  ///< tokens; INT64_MAX/2 or more: all
  int64_t sinks;
};

struct AttentionCount {
  int64_t products = 0;   ///< query–key products
  int64_t keys_read = 0;  ///< keys (each with its value) fetched for a KV head's query heads
};

/// Causal softmax attention with per-head windows over block lists (AAH: aah.md sections 1 and 4).
/// One item is one (row, KV head): item = row · kv_heads + kv_head; its `group` query heads share
/// each key that is fetched, and so may rows of one sequence in one range. Summation: blocks in
/// ascending absolute order by online softmax, keys in ascending order inside a block; a block that
/// a head sees nothing of leaves that head's state alone. Keys outside every head's reach are never
/// touched.
struct AttentionArgs {
  KvPool pool;
  RowMap map;
  const float* q;          ///< [rows][kv_heads · group · head_dim]
  float* out;              ///< the same shape; may not alias q
  int64_t stride;          ///< floats between rows of q and of out
  const HeadReach* reach;  ///< [kv_heads · group]
  int64_t kv_heads;
  int64_t group;
  float scale;  ///< on every product
  int64_t item_begin;
  int64_t item_end;
  AttentionCount* count;  ///< added to
};

/// Most queries of one DepthMix.
inline constexpr int64_t kMaxDepthQueries = 8;

/// The routing read (mhar.md section 2), for several queries that have their sources in common: for
/// every row and query, head h over its slice of D/heads channels,
///   z_i = inverse_rms[i] · <query[h], s_i[h]>,  a = softmax over i of z,  out[h] = sum_i a_i ·
///   s_i[h].
/// Sources are taken in ascending order; before all others the null source, the same for every row,
/// then the mean of other sources, made by an earlier call that gave its logit,
///   log sum_i exp z_i,
/// with which it counts for as much as they did. A query's results do not depend on those beside
/// it. One item is one (row, head): item = row · heads + head. out may not alias a source.
struct DepthMixArgs {
  const float* sources;      ///< source i of row r at sources + i · source_stride + r · width
  int64_t source_stride;     ///< floats
  const float* inverse_rms;  ///< [source][inverse_rms_stride]
  int64_t inverse_rms_stride;
  int64_t num_sources;       ///< the null source and the mean not counted; at least 1 with them
  const float* null_source;  ///< [width], or null where there is none
  float null_inverse_rms;
  const float* mean;                            ///< [rows][width], or null where there is none
  const float* mean_logit;                      ///< [rows][heads]
  int64_t num_queries = 0;                      ///< 1 to kMaxDepthQueries; 1 with a mean
  const float* queries[kMaxDepthQueries] = {};  ///< [width], routing query ⊙ norm weight
  float* out[kMaxDepthQueries] = {};            ///< [rows][width]
  float* logit[kMaxDepthQueries] = {};          ///< null, or [rows][heads]
  int64_t heads;                                ///< divides width
  int64_t width;
  float* scratch = nullptr;  ///< num_queries · (num_sources + 2) floats
  float* shares = nullptr;   ///< null, or where a of the one query goes: [rows][heads][all sources]
  int64_t item_begin = 0;
  int64_t item_end = 0;
};

/// One set of kernels: every member is set.
struct KernelTable {
  const char* name;
  /// Whether bf16_gemm is worth the rounding; where the set has nothing of its own for it, gemm,
  /// which rounds nothing, is as fast.
  bool multiplies_bf16;
  void (*gemm)(const GemmArgs&);
  void (*round_rows)(const RoundRowsArgs&);
  void (*bf16_gemm)(const BF16GemmArgs&);
  void (*quantize_rows)(const QuantizeRowsArgs&);
  void (*integer_gemm)(const IntegerGemmArgs&);
  void (*embed)(const EmbedArgs&);
  void (*rms_norm)(const RmsNormArgs&);
  void (*layer_norm)(const LayerNormArgs&);
  void (*inverse_rms)(const InverseRmsArgs&);
  void (*add)(const AddArgs&);
  void (*rope_table)(const RopeTableArgs&);
  void (*rope)(const RopeArgs&);
  void (*swiglu)(const SwigluArgs&);
  void (*gelu)(const GeluArgs&);
  void (*combine)(const CombineArgs&);
  void (*gate)(const GateArgs&);
  void (*kv_write)(const KvWriteArgs&);
  void (*attention)(const AttentionArgs&);
  /// For the tests: attention that asks of every key up to the row's position whether it is within
  /// reach. All blocks must be present; counts nothing.
  void (*masked_attention)(const AttentionArgs&);
  void (*depth_mix)(const DepthMixArgs&);
  /// For benches: products and sums in registers alone, with what the set multiplies f32 (kF32),
  /// bf16 (kBF16) or integers of 8 bits (kQ8) by. Returns how many operations that were, a product
  /// and a sum being two; proportional to `rounds`.
  double (*peak)(Element type, int64_t rounds);
};

/// Slow, obvious C++ for any CPU: what every faster set is tested against.
const KernelTable& ReferenceKernels();
/// The sets that this machine can run, best first; the reference is the last. Null ends the list.
const KernelTable* const* UsableKernels();

/// The one of them called `name`; the best where the name is empty. Null if there is none.
const KernelTable* FindKernels(const char* name);

}  // namespace lookback::kernels
