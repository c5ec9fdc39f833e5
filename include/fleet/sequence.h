/* sequence.h - operators of sequences: a sample's ids in their order, as a
 * user's history is.
 *
 * A sequence comes as ragged data (fleet_data_ragged()), any number of ids a
 * sample. Operators behind it have a fixed length T = max_len, a constant of
 * the program from 1 to 65,536: a sample keeps its last T values, with
 * keep_first nonzero its first, at places 0, 1, ... in their order; what is
 * left of the row is padding, and the mask says where it begins.
 *
 * What Fleet has operators for is expressed by those there are: a softmax of
 * each sequence's scores [B, T] is fleet_masked_softmax() with the mask; a
 * vector of each sample at all of its places, sequence_expand, is
 * fleet_reshape() to [-1, 1, D], which every elementwise operator broadcasts,
 * and fleet_expand() where a value of its own is wanted.
 *
 * Failures are those of nn.h; FLEET_EDTYPE also of what is not ragged.
 */
#ifndef FLEET_SEQUENCE_H
#define FLEET_SEQUENCE_H

#include <fleet/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* fleet_sequence_embedding - rows of an unbounded table, by 64-bit id, side by
 * side.
 *
 *   ids  ragged, perhaps weighted: rows times their weights
 *   out  [B, T, dim]; zeros where there is no id
 *
 * Ids that are not kept are not looked up, get no row, and count for no
 * accessor. The gradient of a place is that of its id's row. It shares tables
 * with fleet_sparse_embedding(), on servers and ranks, too, and takes its
 * options but for the combiner (FLEET_EINVAL); such a table's rows stay on the
 * host where the program runs on a GPU. */
FLEET_API fleet_var *fleet_sequence_embedding(
    fleet_program *program, fleet_var *ids, int64_t dim, int64_t max_len,
    int keep_first, const fleet_sparse_embedding_options *options);

/* fleet_sequence_mask - 1 where a sample of ragged x has a value, else 0:
 * [B, T] float32. Its sum over axis 1 is the sequence's length, at most T. It
 * is the same for the first and the last values. */
FLEET_API fleet_var *fleet_sequence_mask(fleet_program *program, fleet_var *x,
                                         int64_t max_len);

/* fleet_sequence_pad - ragged values as [B, T] of their type, `value` behind
 * them; of ids a whole number. For fleet_embedding() with padding_id, say. No
 * gradient. */
FLEET_API fleet_var *fleet_sequence_pad(fleet_program *program, fleet_var *x,
                                        int64_t max_len, int keep_first,
                                        float value);

/* --- attention ------------------------------------------------------------ */

/* fleet_causal_softmax - softmax over the last dimension of [B, ..., L, L]:
 * line l counts its numbers 0 to l, of these those whose mask is not 0, as in
 * fleet_masked_softmax(); the others become 0. mask may be NULL. */
FLEET_API fleet_var *fleet_causal_softmax(fleet_program *program, fleet_var *x,
                                          fleet_var *mask);

/* --- recurrent ------------------------------------------------------------ */

/* G is the number of gates: of a GRU 3, of an LSTM 4. */
typedef struct fleet_recurrent_options {
    const char *name; /* prefix of the names; NULL: "gru_<n>", "lstm_<n>" */
    fleet_param_attr input; /* default: Xavier uniform, "<name>.x.w" [D, G H] */
    fleet_param_attr input_bias; /* zeros, "<name>.x.b" [G H] */
    fleet_param_attr state;      /* Xavier uniform, "<name>.h.w" [H, G H] */
    fleet_param_attr state_bias; /* zeros, "<name>.h.b" [G H] */
} fleet_recurrent_options;

typedef fleet_recurrent_options fleet_gru_options;
typedef fleet_recurrent_options fleet_lstm_options;

/* fleet_gru - a gated recurrent unit (Cho et al. 2014) of H units, in the form
 * that PyTorch and cuDNN have: with state h, zeros at first,
 *
 *   r = sigmoid(x_r + s_r)    x_ = x W_x + b_x, s_ = h W_h + b_h
 *   z = sigmoid(x_z + s_z)
 *   n = tanh(x_n + r s_n)
 *   h = h + a (1 - z) (n - h)
 *
 *   x        [B, T, D]
 *   weights  [B, T], a of each step; NULL: 1
 *   out      [B, T, H], h of each step
 *
 * With a mask as weights the state stays as it is behind the last value, so
 * that out at T - 1 is that of the sequence. With attention as weights it is
 * DIEN's AUGRU (Zhou et al. 2019); they get a gradient. Columns of the matrices
 * are r, z, n, H each. options may be NULL. */
FLEET_API fleet_var *fleet_gru(fleet_program *program, fleet_var *x,
                               int64_t units, fleet_var *weights,
                               const fleet_gru_options *options);

/* fleet_lstm - long short-term memory (Hochreiter, Schmidhuber 1997; with a
 * forget gate, Gers et al. 2000) of H units, in the form that PyTorch and cuDNN
 * have: with state h and cell c, zeros at first,
 *
 *   i = sigmoid(x_i + s_i)    x_ = x W_x + b_x, s_ = h W_h + b_h
 *   f = sigmoid(x_f + s_f)
 *   g = tanh(x_g + s_g)
 *   o = sigmoid(x_o + s_o)
 *   c = c + a (f c + i g - c)
 *   h = h + a (o tanh(f c + i g) - h)
 *
 *   x        [B, T, D]
 *   weights  [B, T], a of each step; NULL: 1
 *   out      [B, T, H], h of each step
 *
 * Weights are those of fleet_gru(): with a mask, state and cell stay as they
 * are behind the last value. Columns of the matrices are i, f, g, o, H each.
 * options may be NULL. */
FLEET_API fleet_var *fleet_lstm(fleet_program *program, fleet_var *x,
                                int64_t units, fleet_var *weights,
                                const fleet_lstm_options *options);

/* --- order ---------------------------------------------------------------- */

/* fleet_sequence_reverse - a sample's values from the last to the first; what
 * is behind them stays where it is.
 *
 *   x     [B, T, ...]
 *   mask  [B, T], 1 for each value (fleet_sequence_mask()), of which the first
 *         0 ends the sequence; NULL: all T are values. No gradient
 *   out   as x
 *
 * A recurrent layer between two of them, of the same mask, reads backwards. */
FLEET_API fleet_var *fleet_sequence_reverse(fleet_program *program,
                                            fleet_var *x, fleet_var *mask);

/* --- retrieval ------------------------------------------------------------ */

typedef struct fleet_in_batch_options {
    fleet_var *item_ids; /* [B, 1] int64: an item that is the sample's own, of
                            another sample, is none of its negatives. NULL: all
                            count */
    fleet_var *log_q;    /* [B, 1] float32: the logarithm of each item's share
                            of the samples, which is subtracted from its scores
                            (Yi et al. 2019), so that frequent items are not
                            held back. NULL: not corrected. No gradient */
    float temperature;   /* above 0: products are divided by it; 0: 1 */
} fleet_in_batch_options;

/* fleet_in_batch_softmax - a loss of samples that are pairs: softmax
 * cross-entropy of the own item against all items of the batch, whose vectors
 * are there anyway.
 *
 *   users, items  [B, D]
 *   loss          [B, 1], -log of the own item's probability; of a batch of one
 *                 sample 0
 *
 * The batch is that of an iteration: those of workers and merged ones do not
 * mix. It needs B^2 numbers. options may be NULL. */
FLEET_API fleet_var *fleet_in_batch_softmax(
    fleet_program *program, fleet_var *users, fleet_var *items,
    const fleet_in_batch_options *options);

#ifdef __cplusplus
}
#endif

#endif
