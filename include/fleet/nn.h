/* nn.h - the layers that a program is built from; operators without parameters
 * are in ops.h, which this header includes.
 *
 * Shapes are written [rows, cols] and stored row-major; B is the batch. All
 * values are float32 unless said. Every builder returns its result, or NULL
 * with the first failure kept in the program (see program.h):
 *
 *   FLEET_ESHAPE  shapes that do not fit, with both in the text
 *   FLEET_EDTYPE  element types that do not fit
 *   FLEET_EEXIST  the name is taken
 *   FLEET_EINVAL  any other argument that cannot be, named
 *   FLEET_ESTATE  the program has run and can no longer grow
 *   FLEET_EUNSUPPORTED  fleet_sparse_embedding() of ids that are computed
 *   FLEET_ENOMEM
 */
#ifndef FLEET_NN_H
#define FLEET_NN_H

#include <fleet/ops.h>
#include <fleet/program.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fleet_activation {
    FLEET_LINEAR,
    FLEET_RELU,
    FLEET_TANH,
    FLEET_SIGMOID,
    FLEET_LEAKY_RELU /* of fleet_leaky_relu()'s default alpha; another one: an
                        fc without activation, and that function */
} fleet_activation;

/* --- inputs -------------------------------------------------------------- */

/* fleet_data - a variable that feeds and datasets fill.
 * dims has n_dim entries; the first may be -1, the batch. dtype is
 * FLEET_FLOAT32 or FLEET_INT64. */
FLEET_API fleet_var *fleet_data(fleet_program *program, const char *name,
                                fleet_dtype dtype, const int64_t *dims,
                                int n_dim);

/* fleet_data_ragged - a variable with any number of values per sample, none
 * included, for multi-valued slots: [B, (any)], int64 ids. */
FLEET_API fleet_var *fleet_data_ragged(fleet_program *program,
                                       const char *name);

/* fleet_data_ragged_floats - the same of float32, for fleet_sequence_pool(). */
FLEET_API fleet_var *fleet_data_ragged_floats(fleet_program *program,
                                              const char *name);

/* fleet_data_weighted - ragged ids that have a weight each: PyTorch's
 * per_sample_weights. Returns the ids; their weights are a second variable,
 * "<name>.weights" (fleet_var_weights()), ragged float32, with the offsets of
 * the ids, and fed beside them. A weighted slot of a dataset feeds both.
 * fleet_sparse_embedding() multiplies each row by its id's weight. No gradient
 * goes to weights. */
FLEET_API fleet_var *fleet_data_weighted(fleet_program *program,
                                         const char *name);

/* --- layers with parameters ---------------------------------------------- */

typedef struct fleet_fc_options {
    const char *name; /* prefix of the parameters' names; NULL: "fc_<n>",
                         n from 0 */
    fleet_activation activation; /* applied to out; 0: none */
    fleet_param_attr weight;     /* default: Xavier uniform, "<name>.w" */
    fleet_param_attr bias;       /* default: zeros, "<name>.b" */
    int no_bias;                 /* nonzero leaves b out */
    int num_flatten_dims; /* dimensions of x that stay, the batch included; the
                             others are K. 0: 1. Of x [B, L, K] 2 makes
                             [B, L, n], by one W for all L */
} fleet_fc_options;

/* fleet_fc - a fully connected layer, out = activation(x.W + b).
 *
 *   x    [B, K]; more dimensions are flattened into K, see num_flatten_dims
 *   W    [K, N]  new parameter
 *   b    [N]     new parameter
 *   out  [B, N]
 *
 * n is N, the number of units. options may be NULL. */
FLEET_API fleet_var *fleet_fc(fleet_program *program, fleet_var *x, int64_t n,
                              const fleet_fc_options *options);

typedef struct fleet_embedding_options {
    const char *name;       /* of the layer; NULL: "embedding_<n>" */
    fleet_param_attr table; /* default: uniform in +-sqrt(1 / rows),
                               "<name>.w" */
    int has_padding;        /* nonzero: the row of padding_id reads as zeros */
    int64_t padding_id;     /*          and is never trained; in [0, rows) */
} fleet_embedding_options;

/* fleet_embedding - rows of a dense table.
 *
 *   ids  [B, L] int64, each in [0, rows)
 *   W    [rows, dim]  new parameter, or that of options->table.name
 *   out  [B, L * dim]
 *
 * The gradient is dense, as every parameter's: for large vocabularies use
 * fleet_sparse_embedding(). An id out of range: FLEET_EINVAL when it runs. */
FLEET_API fleet_var *fleet_embedding(fleet_program *program, fleet_var *ids,
                                     int64_t rows, int64_t dim,
                                     const fleet_embedding_options *options);

/* What becomes of the n rows, or numbers, of a sample, as Paddle's
 * sequence_pool and PyTorch's EmbeddingBag have it. Of none it is zeros, and no
 * gradient. The values are those of saved programs. */
typedef enum fleet_combiner {
    FLEET_SUM = 0,
    FLEET_MEAN = 1,  /* the sum / n: AVERAGE */
    FLEET_SQRT = 2,  /* the sum / sqrt(n) */
    FLEET_MAX = 3,   /* column by column the largest; of equal ones the first in
                       the sample, which alone gets the column's gradient */
    FLEET_FIRST = 4, /* the first one; of the others no row is read or made */
    FLEET_LAST = 5   /* the last one, likewise */
} fleet_combiner;

/* What an id reads as whose row a predictor does not have: it was never
 * trained. The values are those of saved programs. */
typedef enum fleet_fresh {
    FLEET_FRESH_INITIAL = 0, /* its initial value, as in training */
    FLEET_FRESH_ZEROS = 1,
    FLEET_FRESH_ROW = 2 /* the row of one id, default_id: an id for all that
                           are rare, say; that one's initial value, if its own
                           row was never trained */
} fleet_fresh;

/* Which keys become rows: Fleet's entries of a sparse_embedding. The values are
 * those of "entry" in configurations, whose texts are Fleet's. */
typedef enum fleet_entry_kind {
    FLEET_ENTRY_ALL = 0, /* every key that gets a gradient */

    /* CountFilterEntry, "count_filter_entry:5": from the update on that is the
     * fifth with a gradient of the key; how often the key comes up in an
     * update does not matter. Exact: the keys that wait are counted in a table
     * of their own, see fleet_table_options */
    FLEET_COUNT_FILTER_ENTRY = 1,

    /* ProbabilityEntry, "probability_entry:0.3": three keys of ten, for good.
     * Which ones is a function of the seed, the table and the key: the same in
     * any number of processes, and in the next training */
    FLEET_PROBABILITY_ENTRY = 2,

    /* "bloom_filter_entry:5:1000000:0.01": as a count filter of 5, in some 5
     * bytes a key in place of 50. A counting Bloom filter (Fan et al. 2000,
     * Summary Cache; DeepRec's CBFFilter) never counts a key too little. It may
     * count too much: once it has counted most_keys different keys, at most
     * false_positive_rate of the keys that come for the first time seem to have
     * come often enough; before that fewer do, and after it more. See
     * fleet_table_options */
    FLEET_BLOOM_FILTER_ENTRY = 3,

    /* "show_click_entry:1.5": from the update on with which the score of the
     * key's shows and clicks, of all updates, is at least 1.5 (fleet_accessor,
     * which the table must have). The row begins with these shows and clicks.
     * Keys that wait decay in fleet_shrink(), and go, by their score, as rows
     * do. Fleet's ShowClickEntry names two slots and no score: they are the
     * accessor's show and click */
    FLEET_SHOW_CLICK_ENTRY = 4
} fleet_entry_kind;

/* What its kind does not read is 0: FLEET_EINVAL. */
typedef struct fleet_entry {
    fleet_entry_kind kind;
    int64_t count;      /* of a count filter: 1 to 2^24; of a Bloom filter: 2
                           to 4,095 */
    double probability; /* of that entry: above 0, below 1 */

    /* of a Bloom filter */
    int64_t most_keys;          /* different keys that it counts: 1 to 2^40 */
    double false_positive_rate; /* 1e-6 to 0.5 */

    float score; /* of a show-click entry: above 0, up to 1e30 */
} fleet_entry;

typedef enum fleet_accessor_kind {
    FLEET_NO_ACCESSOR = 0,

    /* Fleet's CtrCommonAccessor, but for what its servers do to weights
     * (show_scale, zero_init): four numbers a row, 16 bytes. show and click are
     * sums over the samples in which a key comes up, each time that it does;
     * delta_score is what the score has gained since the last save of a delta
     * or a base; unseen days are the days' ends since the row's last update.
     *
     *   score = (show - click) nonclk_coeff + click click_coeff
     *
     * An update of a row adds its shows, clicks and their score to these, and
     * sets the unseen days to 0. A row that was loaded or written without
     * counts is not judged by its score before its first update. */
    FLEET_CTR_ACCESSOR = 1
} fleet_accessor_kind;

/* All-zero numbers are Fleet's defaults; what is to be 0 is stated as 1e-30, or
 * of a threshold below 0, which every score reaches. Other numbers below 0 are
 * refused. */
typedef struct fleet_accessor {
    fleet_accessor_kind kind;
    const char *show;  /* data of the program, [-1, 1] float32 or int64: how
                         often a sample was shown. NULL: once. fleet_minimize()
                         refuses a name that is none (FLEET_EINVAL), and a run
                         a batch with a number below 0 or not finite, with slot
                         and row (FLEET_EINVAL; nothing has changed) */
    const char *click; /* the same: how often it was clicked. NULL: never. Both
                          may be a label, or any slot; Fleet names them in its
                          ShowClickEntry(show, click) */
    float nonclk_coeff, click_coeff; /* 0: 0.1 and 1 */

    /* fleet_shrink(): shows and clicks are multiplied by the rate, then rows go
     * whose score is below delete_threshold, or that have not been seen for
     * more days */
    float show_click_decay_rate;    /* above 0, up to 1; 0: 0.98 */
    float delete_threshold;         /* 0: 0.8 */
    float delete_after_unseen_days; /* 0: 30 */

    /* fleet_save_persistables_with(): a base has rows whose score is at least
     * base_threshold and that were seen within delta_keep_days; a delta those
     * of them whose delta_score is at least delta_threshold */
    float base_threshold;  /* 0: 1.5 */
    float delta_threshold; /* 0: 0.25 */
    float delta_keep_days; /* 0: 16 */

    /* not 0: the last embedx_dim numbers of a row, which has more than these,
     * are a vector that it gets late: they are 0, and stay so, up to the update
     * with which its score is at least embedx_threshold. Then they get initial
     * values, and train from the next update on, for good. The first numbers,
     * Fleet's embed_w, train from the start. Gradients of a vector that is not
     * there are dropped, after they have counted in the clip by global norm.
     * Not with a storage, nor with a rule that keeps numbers of whole rows
     * (FLEET_EUNSUPPORTED): they would hold what such gradients did */
    int64_t embedx_dim;
    float embedx_threshold; /* 0: 10 */

    /* With memory_cap_bytes: fleet_shrink() writes rows that were not seen for
     * more days into the file, from where they come back when they are wanted.
     * 0: rows go there for want of room alone. FLEET_EUNSUPPORTED without a
     * cap */
    float ssd_unseenday_threshold;
} fleet_accessor;

/* Which rows of tables with an accessor a save has; of other tables it has all.
 * The numbers are Fleet's. */
typedef enum fleet_save_mode {
    FLEET_SAVE_ALL = 0,
    FLEET_SAVE_DELTA = 1, /* since the last delta or base; delta scores of those
                             rows are 0 then */
    FLEET_SAVE_BASE = 2,  /* the same with any delta score from 0 on */
    FLEET_SAVE_DAY_END = 3 /* all; then all rows have not been seen for a day
                              more */
} fleet_save_mode;

/* The life of a table's rows: which keys become rows, and when rows go.
 * All-zero fields are defaults, and cost nothing.
 *
 * It is decided when an update changes the table, before any of its rows
 * changes: in sync at the same update, and with the same bits, in one process
 * that merges its batches and for any numbers of workers, servers and ranks.
 * The gradient of a key that does not become a row is dropped, after it has
 * counted in the clip by global norm.
 *
 * A count filter's counts are a table named "<table>.waiting", of dim 1: it
 * is in params_hash and in checkpoints, and fleet_table_stat() and
 * fleet_table_get() read it. A key that waits takes some 50 bytes. A
 * checkpoint without it is loaded with no key counted.
 *
 * A Bloom filter's counts are a table "<table>.filter", likewise; its rows are
 * blocks of counters, which come as keys do, up to 1.44 log2(1 / rate) counters
 * of ceil(log2(count + 1)) bits for each of most_keys and a third of that more,
 * and some more where a bucket of the table has few keys. Keys never leave it
 * one by one: with ttl_updates or ttl_seconds fleet_shrink() empties it, once
 * so much later than it was empty or loaded, and all keys that wait begin anew.
 * Until then a row that has gone comes back with its key's next gradient. A
 * checkpoint of another filter is refused (FLEET_ESHAPE), or begins anew.
 *
 * Such tables stay on the host where a program runs on a GPU; geo mode refuses
 * all but an accessor without embedx_dim (FLEET_EUNSUPPORTED by
 * fleet_init_worker()): its workers train copies of rows, and would go on with
 * what the servers have not. */
typedef struct fleet_table_options {
    fleet_entry entry;
    int unknown_zeros; /* nonzero: in training a key without a row reads as
                          zeros; else as the initial value. A row begins with
                          its initial value in either case */
    fleet_accessor accessor;
    int64_t ttl_updates; /* fleet_shrink() lets rows go that none of so many
                            updates before it has changed; 0: it does not.
                            Updates are those of the job, in async pushes.
                            Saves have the rows' ages; what was loaded without
                            counts as changed by the load */
    int64_t ttl_seconds; /* fleet_shrink() lets rows go that no update has
                            changed since another call of it, that many seconds
                            before; 0: it does not. The time is that of
                            fleet_shrink_at(), else the first worker's. Only
                            calls that are a 32nd of the time apart are kept */
    int64_t most_rows;   /* 0: any number; else 1,024 or more. A table is 1,024
                            buckets by the keys' hashes, and each has at most
                            its share, most_rows / 1024. An update that brings
                            new keys to a full one lets those of its rows go
                            that have changed longest ago, an eighth at once,
                            of the same age those of lower keys, and none that
                            the update changes. New keys for which there is no
                            room then stay without a row, the highest ones. It
                            bounds the counts of a count filter likewise. A load
                            may bring more: updates bring it down */
    int64_t most_bytes;  /* most_rows as bytes of all processes: as many rows
                            as fit, with their states, heads and keys, in whole
                            pages of 4 KB, the index of a bucket, and what a
                            filter counts. fleet_table_stat() counts the same
                            in row_bytes and index_bytes; its free_bytes come
                            on top. Of both limits the lower one holds.
                            FLEET_EINVAL, with the number that would do, when
                            it is trained: there is not room for one row in
                            each bucket */
} fleet_table_options;
/* How a row's weights are kept. All but FLEET_ROW_FLOAT32 take less memory, and
 * are rounded after each update at random, to one of the two numbers beside it
 * that can be kept, with probabilities that make the mean the number itself: so
 * small updates are not lost (Gupta et al. 2015, Deep Learning with Limited
 * Numerical Precision). What is random is a function of the handle's seed, the
 * table, the key, the number of the update and the column: in sync the bits are
 * those of one process, by any number of servers and lanes. States of the
 * optimizer are float32. The values are those of saved programs. */
typedef enum fleet_row_storage {
    FLEET_ROW_FLOAT32 = 0,
    FLEET_ROW_FLOAT16 = 1,  /* 2 bytes a weight, up to 65504 */
    FLEET_ROW_BFLOAT16 = 2, /* 2 bytes a weight, 8 bits of precision */
    FLEET_ROW_INT8 = 3      /* 1 byte a weight and 4 a row: integers up to 127
                               times a power of two that the row has */
} fleet_row_storage;

typedef struct fleet_sparse_embedding_options {
    const char *table; /* layers that name the same table share its rows, and
                          state the same of it below, or nothing; not the
                          name of a variable. NULL: "embedding" */
    fleet_initializer initializer; /* of a row; default: uniform in
                                      +-sqrt(1 / dim) */
    int64_t rows; /* 0: unbounded; else ids are taken modulo rows, or with
                     check_ids must be in [0, rows) */
    fleet_combiner combiner; /* of a sample's ragged ids, each row times its
                                weight if they have weights; all but FLEET_SUM
                                are for ragged ids alone */
    float learning_rate;     /* factor on the optimizer's; 0: 1 */
    float l2_decay;          /* in place of the optimizer's; 0: the
                                optimizer's. Applied to rows as they are
                                pushed */
    int no_decay;
    int frozen;
    fleet_ps ps;        /* what keeps the rows in a hybrid job */
    int check_ids;      /* nonzero, with rows: an id that is not in [0, rows) is
                      refused. From a dataset: FLEET_EFORMAT with file, line,
                      slot and id; fed: FLEET_EINVAL when it runs, with slot,
                      row of the batch and id, on a GPU without the id */
    fleet_fresh fresh;  /* what a predictor reads for an id without a row; kept
                           in saves, see fleet_predictor_set_fresh() */
    int64_t default_id; /* of FLEET_FRESH_ROW */
    fleet_table_options life; /* FLEET_EINVAL: out of its range, with the
                                 range */

    /* Not 0: the table takes at most that much memory of a process, rows,
     * indexes and buffers, and rows that were not needed for a while are in a
     * file in cold_folder, from which they come back when they are. Results are
     * the same to the bit. At least 1 MB, and the rows of a batch must fit.
     * The file has no name, and is gone with its process. Of a life it goes
     * with an accessor, a probability and unknown_zeros, else
     * FLEET_EUNSUPPORTED. docs/tables.md */
    int64_t memory_cap_bytes;
    const char *cold_folder;
    fleet_row_storage storage; /* but for FLEET_ROW_FLOAT32: dim up to 2048; not
                                  in geo mode, not on a GPU, not with a cap of
                                  memory */
} fleet_sparse_embedding_options;

/* fleet_sparse_embedding - rows of an unbounded table, by 64-bit id.
 *
 *   ids  [B, L] int64, or ragged, perhaps weighted
 *   out  [B, L * dim]; ragged: [B, dim], the rows pooled by the combiner
 *
 * With weights w of the n ids, rows x and combiner
 *
 *   FLEET_SUM, FLEET_MEAN, FLEET_SQRT  sum of w x, over 1, n or sqrt(n)
 *   FLEET_MAX                          the largest w x
 *   FLEET_FIRST, FLEET_LAST            w x of that one
 *
 * A mean is over n and not over the sum of the weights. A row exists from its
 * first training step on, if all its gradient is zero, too; until then it reads
 * as its initial value. All layers on a table are looked up together. */
FLEET_API fleet_var *fleet_sparse_embedding(
    fleet_program *program, fleet_var *ids, int64_t dim,
    const fleet_sparse_embedding_options *options);

/* fleet_sequence_pool - a sample's numbers become one.
 *
 *   x    ragged float32
 *   out  [B, 1]; 0 of a sample without numbers
 *
 * No gradient goes to x. */
FLEET_API fleet_var *fleet_sequence_pool(fleet_program *program, fleet_var *x,
                                         fleet_combiner combiner);

typedef struct fleet_layer_norm_options {
    const char *name;    /* prefix of the parameters' names; NULL:
                            "layer_norm_<n>", n from 0 */
    int begin_norm_axis; /* a line is this dimension of x and all behind it, N
                            numbers; 0: 1, a line is a sample */
    float epsilon;       /* above 0; 0: 1e-5 */
    fleet_param_attr scale; /* default: ones, "<name>.w" */
    fleet_param_attr shift; /* default: zeros, "<name>.b" */
    int no_scale, no_shift; /* nonzero leaves w, b out */
} fleet_layer_norm_options;

/* fleet_layer_norm - each line less its mean, over its deviation: (x - mean) /
 * sqrt(variance + epsilon) w + b (Ba et al. 2016).
 *
 *   x    [B, ..., N]
 *   w    [N]     new parameter
 *   b    [N]     new parameter
 *   out  as x
 *
 * options may be NULL. Of [B, L, D] begin_norm_axis 2 takes each D by
 * itself. */
FLEET_API fleet_var *fleet_layer_norm(fleet_program *program, fleet_var *x,
                                      const fleet_layer_norm_options *options);

typedef struct fleet_batch_norm_options {
    const char *name;       /* prefix of the parameters' names; NULL:
                         "batch_norm_<n>", n from 0 */
    float momentum;         /* of the moving averages, in [0, 1); 0: 0.9 */
    float epsilon;          /* above 0; 0: 1e-5 */
    fleet_param_attr scale; /* default: ones, "<name>.w" */
    fleet_param_attr shift; /* default: zeros, "<name>.b" */
    int no_scale, no_shift; /* nonzero leaves w, b out */
    int use_global_stats;   /* nonzero: the moving averages also where x is
                               trained on; then they stay as they are */
    fleet_ps ps;            /* what keeps the moving averages in a hybrid job */
} fleet_batch_norm_options;

/* fleet_batch_norm - each column less its mean, over its deviation: (x - mean)
 * / sqrt(variance + epsilon) w + b (Ioffe, Szegedy 2015, as Fleet's batch_norm
 * with data_layout "NHWC").
 *
 *   x         [B, ..., N]; a column is one of the last dimension, N numbers
 *   w, b      [N]     new parameters
 *   mean      [N]     new parameter "<name>.mean", at first 0
 *   variance  [N]     new parameter "<name>.variance", at first 1
 *   out       as x; options may be NULL
 *
 * In training mean and variance (the mean of squares, over B and not B - 1) are
 * those of the batch; elsewhere (fleet_evaluate(), predictors, executors for
 * tests) the moving averages, which each update brings nearer to those of its
 * batches: m = momentum m + (1 - momentum) x the batch's, see
 * fleet_param_attr.average; they are of all workers, and in saves. Each worker
 * normalizes by its own batch; ranks by all, with strategy.sync_batch_norm. */
FLEET_API fleet_var *fleet_batch_norm(fleet_program *program, fleet_var *x,
                                      const fleet_batch_norm_options *options);

typedef struct fleet_data_norm_options {
    const char *name;         /* prefix of the parameters' names; NULL:
                                 "data_norm_<n>", n from 0 */
    float epsilon;            /* 0: 1e-5 */
    float summary_decay_rate; /* in (0, 1); 0: 0.9999999 */
    float batch_size, batch_sum, batch_square_sum; /* as if so much had been
                                 seen before; 0: 1e4, 0, 1e4 */
    fleet_ps ps; /* what keeps the summary in a hybrid job */
} fleet_data_norm_options;

/* fleet_data_norm - each column by what was trained on so far: (x - sum / size)
 * sqrt(size / squares), as Fleet's data_norm. Other than fleet_batch_norm() it
 * does the same to a sample in training, in tests and in a predictor, whatever
 * its batch is.
 *
 *   x    [B, ..., N]
 *   size, sum, squares  [N]  new parameters "<name>.size", "<name>.sum",
 *                            "<name>.squares": moving averages of what a batch
 *                            has of lines, of x, and of (x - mean)^2 + epsilon.
 *                            Fleet's summary is this over 1 -
 *                            summary_decay_rate
 *   out  as x
 *
 * options may be NULL. */
FLEET_API fleet_var *fleet_data_norm(fleet_program *program, fleet_var *x,
                                     const fleet_data_norm_options *options);

typedef struct fleet_dice_options {
    const char *name;       /* prefix of the parameters' names; NULL:
                               "dice_<n>", n from 0 */
    float momentum;         /* of the moving averages, in [0, 1); 0: 0.9 */
    float epsilon;          /* above 0; 0: 1e-8 */
    fleet_param_attr alpha; /* default: zeros, "<name>.alpha" */
    fleet_ps ps;            /* what keeps the moving averages in a hybrid job */
} fleet_dice_options;

/* fleet_dice - p x + (1 - p) alpha x, where p is the sigmoid of x as
 * fleet_batch_norm() without scale and shift normalizes it: prelu with a bend
 * that moves with the data (Zhou et al. 2018, Deep Interest Network).
 *
 *   x      [B, ..., N]
 *   alpha  [N]  new parameter
 *   mean, variance  [N]  new parameters, "<name>.mean", "<name>.variance"
 *   out    as x
 *
 * options may be NULL. */
FLEET_API fleet_var *fleet_dice(fleet_program *program, fleet_var *x,
                                const fleet_dice_options *options);

typedef enum fleet_prelu_mode {
    FLEET_PRELU_ALL = 0,     /* one alpha: [1] */
    FLEET_PRELU_CHANNEL = 1, /* one for each of dimension 1: of x [B, C, ...]
                                [C, 1, ...] */
    FLEET_PRELU_ELEMENT = 2  /* one for each element of a sample */
} fleet_prelu_mode;

/* fleet_prelu - x where x > 0, else alpha x, with alpha a new parameter (He et
 * al. 2015): default 0.25, "prelu_<n>.alpha"; alpha may be NULL. x has a batch
 * and at least two dimensions, unless the mode is FLEET_PRELU_ALL. */
FLEET_API fleet_var *fleet_prelu(fleet_program *program, fleet_var *x,
                                 fleet_prelu_mode mode,
                                 const fleet_param_attr *alpha);

/* fleet_parameter - a bare parameter of that shape, default Xavier uniform over
 * its first and last dimension. attr->name is required. */
FLEET_API fleet_var *fleet_parameter(fleet_program *program,
                                     const int64_t *dims, int n_dim,
                                     const fleet_param_attr *attr);

#ifdef __cplusplus
}
#endif

#endif
