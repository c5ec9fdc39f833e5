/* io.h - saving and loading: checkpoints of everything trained, and inference
 * models for a predictor.
 *
 * A save is a folder. It is written beside its place, checksummed, flushed and
 * then put in its place at once: a crash leaves the old folder or the new one.
 * A folder that exists already is replaced only if it is empty or a save
 * itself. The format is described in docs/formats.md.
 *
 * With servers a save is the first worker's: it makes the folder, each lane of
 * each server writes its own part, and it puts the whole in its place. In other
 * workers the call does nothing and is FLEET_OK, with a line in the log. All
 * servers and workers must see the folder at the same path. A save loads on any
 * number of servers, and in one process, whatever job wrote it. Other workers
 * do not wait for it: fleet_barrier_worker() before they load it.
 *
 * Of ranks the first one saves, too; each rank writes its part of what is
 * shared out over them (tables, states and weights with strategy.sharding), and
 * serves the save whenever it waits.
 */
#ifndef FLEET_IO_H
#define FLEET_IO_H

#include <fleet/dataset.h>
#include <fleet/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* fleet_save_persistables - parameters, optimizer states, rows, counters; where
 * the training of datasets is (fleet_dataset_position()), and the extra bytes
 * of the user (fleet_extra_set()). In the middle of a pass it may be called
 * from fleet_train_options.on_batch.
 *
 *   FLEET_EIO     cannot be written: the path and the reason are named;
 *                 nothing is left behind
 *   FLEET_EEXIST  the folder holds something else
 *   FLEET_ESTATE  a merge group is under way (fleet_executor_flush() ends it),
 *                 or a load has stopped half-way; with servers, before
 *                 fleet_init_worker(); this rank of several has its own rows
 *                 of a table alone, because it has loaded them and not joined
 *                 the other ranks yet, or has left them
 *   FLEET_EPEER, FLEET_ETIMEDOUT  a server is gone, or does not answer
 *   and what a server could not do, in its words
 *
 * With servers, in sync, all parts are of one update, also while other workers
 * train; in async each part is between two updates of its own.
 */
FLEET_API fleet_status fleet_save_persistables(fleet *fleet, const char *path);

/* All-zero fields are defaults. */
typedef struct fleet_save_options {
    fleet_save_mode mode; /* which rows of tables with an accessor */
} fleet_save_options;

/* fleet_save_persistables_with - the same with some of the rows: a delta, a
 * base, or a day's end (fleet_save_mode, fleet/nn.h). Parameters, counters and
 * tables without an accessor are in each of them. When the save is in its
 * place, rows' delta scores and unseen days change as the mode says: in sync
 * between the two updates between which it was written. The save has them as
 * they are after that. In async a lane
 * trains on while it saves, and what other workers push to a row between its
 * save and the end of it is in no later delta: let all workers end their pass
 * first. Unless the mode is FLEET_SAVE_ALL no worker may save at the same time.
 *
 * A delta is no checkpoint: fleet_load_model_with() brings it, with keep_rows,
 * into what a base has left. options may be NULL.
 *
 *   FLEET_EINVAL  a mode that does not exist
 *   and the codes of fleet_save_persistables()
 */
FLEET_API fleet_status fleet_save_persistables_with(
    fleet *fleet, const char *path, const fleet_save_options *options);

/* fleet_save_cache_model - the hot rows of each table with an accessor, weights
 * alone: those that were shown at least as often as the row that is at `rate`
 * of all of the table's rows, the most shown one first. rate 0: Fleet's
 * 0.00055. For what answers most requests from a few rows; loaded by
 * fleet_load_one_table(), with FLEET_STATES_INITIALIZE into a trained table:
 * it has no states. *rows, unless rows is NULL: how many rows it has, in other
 * workers than the one that saves 0.
 *
 *   FLEET_EINVAL  a rate that is not in [0, 1]; no table has an accessor
 *   and the codes of fleet_save_persistables()
 */
FLEET_API fleet_status fleet_save_cache_model(fleet *fleet, const char *path,
                                              double rate, int64_t *rows);

/* fleet_load_model - what fleet_save_persistables() wrote, by name, into the
 * parameters and tables of this handle's programs. Call it after
 * fleet_minimize(), which says what states the rows have: before it none of the
 * optimizer's are loaded, and a program whose tables got rows so can be run,
 * but no more be trained by an optimizer that keeps states (FLEET_ESTATE of
 * fleet_executor_create()). Everything is read and
 * checked before anything is changed; should reading it again fail after that,
 * the handle neither runs nor saves until a load succeeds. Another save may
 * take its place meanwhile: one whole save is loaded, the old one or the new
 * one. Datasets standardize with the saved means and deviations from then on,
 * datasets made later, too, if they standardize as many columns. The next
 * training pass goes on where the save was made (fleet_train_stop() says how
 * exactly); a pass that is under way, whose on_batch makes this call, stays
 * where it is.
 *
 * With servers every server reads the save, too. Before fleet_init_worker() all
 * workers call it, or the first one alone, and it is that call that has the
 * servers load; after it all workers call it, the servers load at once, and the
 * call returns when all workers have made it.
 *
 * Ranks all call it before fleet_init_worker(), which gives all of them what
 * the first one has, and refuses if only some have loaded their part.
 *
 * What the save has and the programs do not is left out, with a line in the
 * log. fleet_load_model_with() loads saves that fit less.
 *
 *   FLEET_ENOENT    no save at the path, or a parameter of the programs that
 *                   the save does not have
 *   FLEET_ECORRUPT  a damaged file, named
 *   FLEET_ESHAPE    a parameter of another shape, with another optimizer's
 *                   state, or statistics of other columns than a dataset's
 *   FLEET_EINVAL    an inference model
 *   FLEET_ESTATE    a merge group is under way; ranks have met already
 *   FLEET_EUNSUPPORTED  another version of the format
 *   FLEET_EIO       cannot be read, or was replaced time and again meanwhile
 *   FLEET_ENOMEM
 */
FLEET_API fleet_status fleet_load_model(fleet *fleet, const char *path);

/* What becomes of a parameter or table of the programs that the save does not
 * have. */
typedef enum fleet_on_missing {
    FLEET_MISSING_REFUSE,    /* FLEET_ENOENT */
    FLEET_MISSING_KEEP,      /* it stays what it is, with its states; of a table
                                the rows are as old as before, and the counts
                                of its filter stay */
    FLEET_MISSING_INITIALIZE /* it starts anew, with its states */
} fleet_on_missing;

/* What becomes of what the save has and no program does: a parameter, a table,
 * or, with FLEET_STATES_INITIALIZE, a state of the optimizer. */
typedef enum fleet_on_extra {
    FLEET_EXTRA_IGNORE, /* a line in the log */
    FLEET_EXTRA_REFUSE  /* FLEET_ENOENT; FLEET_ESHAPE of a state */
} fleet_on_extra;

/* What becomes of a parameter that has another shape in the save: a model that
 * has got one more slot has a larger first layer. Tables are not meant: see
 * `wider` of fleet_load_table_options. */
typedef enum fleet_on_shape {
    FLEET_SHAPE_REFUSE,    /* FLEET_ESHAPE */
    FLEET_SHAPE_INITIALIZE /* it starts anew, with its states */
} fleet_on_shape;

/* Optimizer states of what both have. */
typedef enum fleet_load_states {
    FLEET_STATES_REFUSE,    /* they are those of the optimizer: FLEET_ESHAPE */
    FLEET_STATES_INITIALIZE /* by name; those that the save does not have start
                               anew, and of their rows the count of updates */
} fleet_load_states;

/* Where datasets go on, that have trained when the save was made. */
typedef enum fleet_load_position {
    FLEET_POSITION_RESUME, /* where they were: see fleet_train_stop(); passes
                              that are over count, also of other files */
    FLEET_POSITION_ANEW    /* with the first batch of pass 0: for new files. The
                              default of `load` in a configuration */
} fleet_load_position;

/* How a save is loaded. All-zero fields are defaults, which are those of
 * fleet_load_model(). */
typedef struct fleet_load_options {
    fleet_on_missing on_missing;
    fleet_on_extra on_extra;
    fleet_load_states states;
    int restart; /* nonzero: no update was done, as for the learning rate's
                    decay and Adam's corrections, and of no row. Another
                    optimizer than the saved one wants it: Adam's first steps
                    are too long where its moments start anew and its
                    corrections do not */
    fleet_load_position position;
    int keep_rows; /* nonzero: rows that the save does not have stay, and a
                      delta may be loaded (fleet_save_persistables_with()) */
    fleet_on_shape on_shape;
} fleet_load_options;

/* fleet_load_model_with - the same of a save that has more or less than the
 * programs: of a smaller model, of another optimizer. With servers or ranks all
 * that call it give the same options. A line in the log names all that was
 * kept, initialized or left out. options may be NULL.
 *
 *   FLEET_EINVAL  an option that is none of its choices
 *   FLEET_ESHAPE  also: FTRL from a save without its states, from which its
 *                 weights follow
 *   and the codes of fleet_load_model()
 */
FLEET_API fleet_status fleet_load_model_with(fleet *fleet, const char *path,
                                             const fleet_load_options *options);

/* fleet_extra_set - bytes of the user's own, which the handle's checkpoints
 * hold from now on: the best metric so far, how long it has not improved,
 * whatever a training needs besides. The handle keeps a copy. data NULL, or
 * size 0: none. A load brings those of the save, none for a save without. In a
 * job worker 0's are saved, and each worker gets them as it loads.
 *
 *   FLEET_EINVAL  more than 2^20 bytes
 *   FLEET_ENOMEM
 */
FLEET_API fleet_status fleet_extra_set(fleet *fleet, const void *data,
                                       size_t size);

/* fleet_extra_get - the handle's extra bytes: those that were set, or came with
 * the last load; the handle's until then. NULL, with *size 0, if there are
 * none. size may be NULL. */
FLEET_API const void *fleet_extra_get(const fleet *fleet, size_t *size);

/* fleet_save_inference_model - the part of a program that computes `fetch` from
 * `feed`, and the weights and rows it needs, without optimizer states. Ids of
 * fleet_data_weighted() need their weights in feed, too:
 * fleet_program_var(program, "<name>.weights"). The order of feed and fetch is
 * that of the predictor's inputs and outputs.
 *
 *   FLEET_ENOENT  a variable that fetch depends on is not among feed
 *   FLEET_EINVAL  a feed that is no data variable, a fetch that is not computed
 *   and the codes of fleet_save_persistables(), but a merge group may be under
 *   way
 */
FLEET_API fleet_status fleet_save_inference_model(
    fleet *fleet, const char *path, fleet_var *const *feed, int n_feed,
    fleet_var *const *fetch, int n_fetch);

/* All-zero fields are defaults. */
typedef struct fleet_inference_options {
    /* Whose lines the model will score (fleet/predict.h): its format, slots,
     * and means and deviations go into the save, its files do not. It has its
     * files. NULL: none: the model takes values alone. */
    struct fleet_dataset *dataset;
    const char *label; /* the slot that has the label, for evaluations; NULL:
                          none has */
} fleet_inference_options;

/* fleet_save_inference_model_with - the same of a model that scores lines of
 * text, too, as the dataset has read them for its training. What fleet-train
 * saves can do so. A pipe_command is not in the save: who predicts says it
 * again. options may be NULL.
 *
 *   FLEET_ENOENT   no slot of the dataset feeds a variable of feed, or has the
 *                  label's name
 *   FLEET_EDTYPE, FLEET_ESHAPE  a slot does not fit its variable
 *   FLEET_EINVAL   a dataset of another handle
 *   FLEET_ESTATE   a dataset without files
 *   and the codes of fleet_save_inference_model(), and of reading the dataset's
 *   files if its means are not known yet
 */
FLEET_API fleet_status fleet_save_inference_model_with(
    fleet *fleet, const char *path, fleet_var *const *feed, int n_feed,
    fleet_var *const *fetch, int n_fetch,
    const fleet_inference_options *options);

/* --- predictor: no fleet handle needed ------------------------------------ */

typedef struct fleet_predictor fleet_predictor;

struct fleet_feed;

/* fleet_load_inference_model - a predictor of what was saved. NULL: see
 * fleet_last_status() and fleet_last_error(), with the codes of
 * fleet_load_model(); FLEET_EINVAL for a save without a program.
 *
 * What a dataset did to the values of its slots (hash, standardize, ...) is not
 * part of the program: feed what the dataset would have fed, or score lines of
 * text (fleet/predict.h). */
FLEET_API fleet_predictor *fleet_load_inference_model(const char *path);

/* fleet_predictor_set_fresh - what ids without a row read as from now on, in
 * place of what the model was saved with (`fresh` of
 * fleet_sparse_embedding_options): in the table of that name, or in all for
 * NULL. default_id is that of FLEET_FRESH_ROW, else it is not used.
 *
 *   FLEET_ENOENT  the model has no such table
 *   FLEET_EINVAL  no such choice; default_id is not in [0, rows) of a table
 *                 that checks ids
 *   FLEET_ESTATE  the predictor has run
 */
FLEET_API fleet_status fleet_predictor_set_fresh(fleet_predictor *predictor,
                                                 const char *table,
                                                 fleet_fresh fresh,
                                                 int64_t default_id);

/* NULL is fine. No call may be running. */
FLEET_API void fleet_predictor_destroy(fleet_predictor *predictor);

/* What it computes: outputs 0 .. n-1, in the order of `fetch`; NULL for another
 * i. The variables are the predictor's. */
FLEET_API int fleet_predictor_output_num(const fleet_predictor *predictor);
FLEET_API const fleet_var *fleet_predictor_output(
    const fleet_predictor *predictor, int i);
FLEET_API int fleet_predictor_input_num(const fleet_predictor *predictor);
FLEET_API const fleet_var *fleet_predictor_input(
    const fleet_predictor *predictor, int i);

/* fleet_predictor_run - score a batch: feeds as fleet_executor_run() takes
 * them; output i goes to out[i], size[i] bytes of the caller's.
 *
 * Threads: any number of calls at the same time; each runs on its own thread
 * alone. Scores are those of the executor that was trained, whatever batch a
 * row comes in: to the bit where oneDNN computes with AVX-512; with less the
 * last bits of a row may depend on how many rows its batch has. But of ids that
 * were never trained the model says what they read as (fleet_fresh). A child of
 * fork() may go on with it if no call ran meanwhile.
 *
 * Batches of any sizes in turn are fine: a plan is made for each power of 2
 * from 4 to 2^20.
 *
 *   as fleet_executor_run(), but what is computed may be NaN if what is fed is
 */
FLEET_API fleet_status fleet_predictor_run(fleet_predictor *predictor,
                                           const struct fleet_feed *feed,
                                           int n_feed, void *const *out,
                                           const size_t *size, int n_out);

#ifdef __cplusplus
}
#endif

#endif
