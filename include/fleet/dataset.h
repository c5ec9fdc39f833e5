/* dataset.h - training data from files, as a stream of batches.
 *
 * A QueueDataset reads its files in order, from the disk or through a command,
 * and hands out batches that do not depend on the number of reader threads.
 *
 * An InMemoryDataset reads its files once, into memory, from which its passes
 * take samples in an order that may be shuffled.
 *
 * A training pass is shared out among the job's workers: with a file or more
 * for each, a worker reads its block of them (fleet_util_file_shard()); with
 * fewer files, and with FLEET_IDX, all read the same stream and batch b is that
 * of worker b mod n. Passes for test read everything, in whichever worker.
 *
 * Threads: a dataset belongs to one thread at a time; its own reader threads
 * are inside.
 */
#ifndef FLEET_DATASET_H
#define FLEET_DATASET_H

#include <fleet/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fleet;
struct fleet_var;
typedef struct fleet_dataset fleet_dataset;

typedef enum fleet_format {
    FLEET_MULTISLOT,  /* per slot: count, then that many values */
    FLEET_CRITEO,     /* label, 13 integers, 26 hex texts, tab-separated */
    FLEET_CSV,        /* any columns, any one-byte separator */
    FLEET_IDX,        /* MNIST's images and labels */
    FLEET_LIBSVM,     /* label, then index:value, as LIBSVM and SVM-light */
    FLEET_SLOT_TEXT,  /* name:value, as PaddleRec's slot data */
    FLEET_JSON_LINES, /* an object a line, whose keys are slots */
    FLEET_TFRECORD,   /* TFRecord files of tf.Example, whose features are
                         slots */
    FLEET_PARQUET     /* columns of Apache Parquet, by their names */
} fleet_format;

/* What is done to a cell of a csv file, or a value of a Parquet column. */
typedef enum fleet_transform {
    FLEET_TRANSFORM_NONE,    /* the number in the cell */
    FLEET_LOG1P,             /* log(1 + x), x > -1 */
    FLEET_STANDARDIZE,       /* (x - mean) / deviation over the training data */
    FLEET_LOG1P_STANDARDIZE, /* both, the logarithm first */
    FLEET_HASH,              /* fleet_hash_text() of the cell */
    FLEET_EQUALS,            /* 1 if the cell is one of `equals`, else 0 */
    FLEET_WORDS /* ids with dim -1: fleet_hash_text() of each word: of letters,
                   digits and what is not ASCII; A to Z become a to z */
} fleet_transform;

/* A slot: what one data variable is fed with. All-zero fields are defaults. */
typedef struct fleet_slot {
    const char *name;  /* of the data variable */
    fleet_dtype dtype; /* FLEET_FLOAT32, or FLEET_INT64 for ids and classes;
                          0: FLEET_FLOAT32 */
    int64_t dim;       /* values per sample; -1: any number, none included, for
                          a ragged variable of the dtype; 0: 1 */

    /* csv: names (with a header) or positions from 0, as texts. One column per
     * value; with dim -1 each cell that is not missing is one. Parquet: names;
     * NULL: the slot's. A column of lists gives all values of a slot, dim of
     * them or with dim -1 any number. Other formats have no columns. */
    const char *const *columns;
    int n_column;
    const fleet_transform *transforms; /* 1 for all, or one per column; NULL:
                                          none for numbers, hash for ids */
    int n_transform;
    const char *const *equals; /* for FLEET_EQUALS */
    int n_equals;
    int required; /* csv, slot text, JSON lines, tf.Example, Parquet: nonzero:
                     FLEET_EFORMAT where it is missing, as a label should be */

    int weighted; /* nonzero, with FLEET_INT64 and dim -1: values are "id" or
                     "id:weight", for a variable of fleet_data_weighted(); an
                     id without a weight has 1 */

    /* A slot that no line has: it is made of slots in front of it, whose names
     * these are, and stands behind all slots that lines have. Of FLEET_INT64,
     * with the dim of the slot that it is made of, or the product of their
     * dims; -1 if one of them is -1. Not for libsvm.
     *
     *   crossed    of 2 to 8 slots of ids: an id for each combination of an id
     *              of each, the last slot's changing first: XXH64 of these ids,
     *              8 bytes each, little-endian, with the slot's position as
     *              seed; at most 2^20 in a sample
     *   bucketed   of a slot of FLEET_FLOAT32: for each number how many of
     *              n_bucket boundaries, which rise, are not above it */
    const char *const *from;
    int n_from;
    const float *buckets;
    int n_bucket; /* 0: crossed */
} fleet_slot;

/* All-zero fields are defaults. */
typedef struct fleet_dataset_options {
    fleet_format format;
    int64_t batch_size; /* samples per batch; 0: 1; at most 2^31 */
    int thread_num;     /* reader threads; 0: 1; at most 1,024. Batches do not
                           depend on it */

    /* The slots in the order of the file: for FLEET_CSV `slots`, for
     * FLEET_MULTISLOT either `slots` or, as in Fleet, the variables they feed
     * (dtype, width, raggedness and whether they are weighted are then the
     * variables'; weights are fed with their ids, and are none of them).
     * FLEET_CRITEO has slots of its own: "label" [1] int64, "dense_input" [13]
     * float32, "1" .. "26" [1] int64. FLEET_IDX: "image" [rows * cols] float32
     * in [0, 1], "label" [1] int64. A slot that no variable has the name of is
     * read and checked, and feeds nothing.
     *
     * FLEET_SLOT_TEXT, FLEET_JSON_LINES, FLEET_TFRECORD: slots in any order,
     * found by their names; one that a line does not have is 0s, or no value
     * with dim -1. FLEET_TFRECORD: ids are an int64_list, or texts of a
     * bytes_list, which are hashed; numbers a float_list or int64_list; slots
     * have no weights.
     * FLEET_PARQUET: as csv with a header; a null is a cell that is missing, a
     * text is a cell as it is, blanks included, and an integer what the cell of
     * its digits is; integers for numbers and ids, reals for numbers alone;
     * slots have no weights. It needs the plug-in libfleet_arrow.so
     * (docs/dependencies.md), else a pass is FLEET_EUNSUPPORTED.
     * FLEET_LIBSVM: the label, of dim 1, where -1 is class 0 of FLEET_INT64;
     * then, if lines have qid:NUMBER, "qid", FLEET_INT64; then one slot for all
     * features: FLEET_INT64 with dim -1, ids that are the indexes and have the
     * values as weights (weighted), or must have the value 1; or FLEET_FLOAT32
     * of a dim above 1, in which index i is value i, others are 0, and indexes
     * rise. */
    const fleet_slot *slots;
    int n_slot;
    struct fleet_var *const *use_var;
    int n_use_var;

    /* A shell pipeline through which each file is sent: its output is read in
     * the file's place. NULL or "cat": none. Not for FLEET_IDX and
     * FLEET_PARQUET, which are read at any place.
     * With {path} in it, as "aws s3 cp {path} -", it opens what it reads: names
     * of the list are no globs, and no files that this process looks at. Each
     * {path} becomes the name, quoted for the shell: no quotes stand around it;
     * the command's standard input is empty. A stopped pass goes on over equal
     * names, whatever they have become. */
    const char *pipe_command;

    /* Milliseconds, up to 2^31 - 1, that the command, a FIFO or standard input
     * may give nothing and not end: then it is FLEET_ETIMEDOUT, and the command
     * is killed with all it has started. 0: as long as it likes in one process;
     * in a job, whose other processes wait, step_deadline_ms (init.h). */
    int64_t pipe_timeout_ms;

    /* Samples in the shuffle buffer; 0 keeps the files' order. The order is a
     * function of (the handle's seed, the pass), and of the first of the
     * worker's own files if each worker has some. Only training passes count.
     */
    int64_t shuffle;

    /* Lines of a lease, rounded up to whole batches; 0: workers have fixed
     * shares. With leases a training pass of several workers is shared out as
     * they get on: who has trained a lease asks server 0 for the next one of
     * all files, so a worker that is slow, or comes late, trains fewer lines,
     * and each line is trained once. Leases follow the order of the pass, the
     * shuffled one with `shuffle`. Each worker reads all files, and parses its
     * own batches. Of workers that update apart (ps-async, ps-half-async,
     * ps-geo); in other jobs of several workers a pass is FLEET_EUNSUPPORTED.
     * One worker has all leases, which are the batches that it has without
     * them. Not for in-memory datasets, whose samples are in one worker. */
    int64_t lease_lines;

    /* Lines that cannot be read as the slots say, and that are left out of a
     * pass: the first ones are logged, with file, line and reason, and how many
     * they were; one more is FLEET_EFORMAT. 0: a bad line is FLEET_EFORMAT. A
     * record of FLEET_TFRECORD is a line, too; one whose length is damaged is
     * FLEET_ECORRUPT, as none behind it can be found. So is a row of
     * FLEET_PARQUET, and damage to its file is FLEET_ECORRUPT.
     * Each worker counts its share's, and one that goes on in the middle of a
     * pass those before it, too. Batches are cut before: one with bad lines has
     * fewer samples; in memory, only where the model refuses a value. Headers,
     * files that cannot be unpacked and lines of more than 64 MB are errors as
     * ever. Not for FLEET_IDX. */
    int64_t max_bad_lines;

    /* Nonzero: a pass reads FILE.fleetcache beside each file in its place: what
     * its lines were parsed to, many times faster than parsing them again. A
     * pass begins with making those that are missing, or that are of another
     * file, of other slots or options, or of another version; a cache is as
     * large as the values of its file. Batches are the same. Where one cannot
     * be made, for a full disk, a folder that may not be written, a bad line or
     * what is no regular file, a warning says so, and files are read as text
     * until the next set_filelist. Not with a pipe_command, which may change
     * without a trace, nor for FLEET_IDX. Workers that share files each make
     * theirs. */
    int cache;

    /* In-memory datasets alone: bytes that samples may take, those that are
     * preloaded and those that a global_shuffle makes anew among them. 0: as
     * many as leave 64 MB of what the system, or a control group of the
     * process, has left. */
    int64_t memory_limit;

    /* Negative down-sampling: of the samples whose label is 0 training passes
     * keep this share, above 0 and below 1, and of the others all; 0: all. A
     * sample is drawn by the handle's seed, the pass, its file's name and the
     * number of its line: the same for any number of threads and workers, and
     * others in each pass. Batches are cut before, as for max_bad_lines: one
     * has fewer samples. A model trained so says too much:
     * fleet_calibrate() (applications.h) puts its predictions right. */
    double negative_rate;
    const char *negative_label; /* the slot of the label, of dim 1 */

    /* Draws by weight: of the samples whose slot of this name, float and of dim
     * 1, has w training passes keep w / draw_most of those, drawn as negative
     * ones are, and all from draw_most on; below 0 it makes its line a bad one.
     * NULL: all. Beside negative_rate the chances are multiplied. The slot
     * needs no variable. Losses and predictions are of what was drawn. */
    const char *draw_slot;
    double draw_most; /* above 0; 0: 1 */

    /* csv; `missing` is for texts of Parquet, too */
    char separator;      /* 0: ',' */
    int header;          /* nonzero: the first line names the columns */
    int64_t skip_lines;  /* at the head of each file, before the header */
    const char *missing; /* a cell that counts as missing, as an empty one
                            does: it is 0 in a float slot, after the transform;
                            in an id slot it is the hash of "", 0 for
                            FLEET_EQUALS, and left out with dim -1 */
    char comment;        /* lines that begin with it are skipped; 0: none */
} fleet_dataset_options;

/* fleet_queue_dataset - a dataset that streams its files.
 *
 * Strings, slots and arrays are copied. The dataset belongs to the handle;
 * fleet_dataset_destroy() ends it sooner. NULL: see fleet_last_error().
 */
FLEET_API fleet_dataset *fleet_queue_dataset(
    struct fleet *fleet, const fleet_dataset_options *options);

/* fleet_in_memory_dataset - a dataset whose passes are over samples in memory:
 * those of this worker's share of a training pass over the files, as
 * fleet_dataset_load_into_memory() has read them, in blocks as compact as a
 * cache. Batches and bits are those of a queue dataset with these samples in
 * this order; only those of files with bad lines are cut without them. Not for
 * passes for test in a job of several workers, which are over all samples:
 * FLEET_EUNSUPPORTED. As fleet_queue_dataset() for all else.
 *
 *   FLEET_EINVAL   `shuffle` is set: fleet_dataset_local_shuffle() is for that;
 *                  or memory_limit is below 0
 *   FLEET_EUNSUPPORTED  negative_rate is set: each pass has all samples
 */
FLEET_API fleet_dataset *fleet_in_memory_dataset(
    struct fleet *fleet, const fleet_dataset_options *options);
FLEET_API void fleet_dataset_destroy(fleet_dataset *dataset);

/* fleet_dataset_set_filelist - the files, as globs: sorted bytewise, each must
 * match; "-" is standard input. That, a FIFO, and whatever else is no regular
 * file, comes once: a second pass over such a list is FLEET_ESTATE when it
 * begins, and so is another dataset's over standard input; several workers that
 * would share one are FLEET_EINVAL, as is standardize without means. Who has a
 * new FIFO sets the list again. With {path} in pipe_command they are names, as
 * they are, sorted bytewise, which may be read again. FLEET_IDX: exactly two
 * paths, regular files, the images and the labels. Names that end in .gz are
 * unpacked. Files are opened when a pass begins; of FLEET_IDX the images'
 * header is read now. A pass that was stopped ends so.
 *
 *   FLEET_EINVAL   no files, a path that is NULL, "-" twice; a name for {path}
 *                  that is empty or "-"
 *   FLEET_ENOENT   a glob that matches nothing
 *   FLEET_EIO      a folder below a glob that may not be read: it is named
 *   FLEET_EFORMAT  images without a header of images
 */
FLEET_API fleet_status fleet_dataset_set_filelist(fleet_dataset *dataset,
                                                  const char *const *globs,
                                                  int n);

/* --- samples in memory ---------------------------------------------------
 *
 * FLEET_EINVAL without a dataset, FLEET_ESTATE for a queue dataset, within a
 * pass over the samples, and where there are none, but for loads and
 * fleet_dataset_release_memory(). */

/* fleet_dataset_load_into_memory - read this worker's share of the files, with
 * thread_num threads; what was in memory goes. A pass that was stopped goes on
 * if the files are the same, and else has ended.
 *
 *   FLEET_ENOMEM   samples take more than memory_limit, or than the system has
 *                  left: their size so far, and about all of it, is said
 *   FLEET_ESTATE   no files; this process is a server
 *   FLEET_EEND     fleet_train_stop() was called, where a worker may stop alone
 *   as passes over files fail. Nothing is in memory then.
 */
FLEET_API fleet_status fleet_dataset_load_into_memory(fleet_dataset *dataset);

/* fleet_dataset_preload_into_memory - begin to read this worker's share of the
 * files, those of the next day, say, in threads of its own, while passes over
 * what is in memory go on. Means of standardize that are not known yet are made
 * before it returns. Errors of reading are those of the next call. Until that
 * the list of files stays, and other loads are FLEET_ESTATE. It may be called
 * within a pass.
 *
 * fleet_dataset_wait_preload_done - wait for that; then what was in memory
 * goes, and what was read takes its place, as after
 * fleet_dataset_load_into_memory().
 * If reading has failed what was in memory stays. FLEET_EEND, by
 * fleet_train_stop(): it goes on, and may be waited for again. */
FLEET_API fleet_status
fleet_dataset_preload_into_memory(fleet_dataset *dataset);
FLEET_API fleet_status fleet_dataset_wait_preload_done(fleet_dataset *dataset);

/* fleet_dataset_local_shuffle - from now on passes take this worker's samples
 * in a shuffled order, a function of (the handle's seed, the number of the pass
 * that comes next, the worker). Each call shuffles what was loaded: twice
 * before the same pass is once. A pass that was stopped, also in a process
 * before this one, goes on only in the order it had begun with, for which each
 * shuffle is to be called again: it then is of the same pass as the first time.
 */
FLEET_API fleet_status fleet_dataset_local_shuffle(fleet_dataset *dataset);

/* fleet_dataset_global_shuffle - put the samples of all workers into one
 * shuffled order and share it out by batches: batch b of it becomes batch b / n
 * of worker b mod n. All n workers, which have samples in memory, make this
 * call together, between fleet_init_worker() and fleet_stop_worker(). Samples
 * travel from worker to worker: beside servers by sockets of the workers' own,
 * of ranks by their communicator. The order is a function of (seed, pass), of
 * the samples as they were loaded, whatever shuffles there were before; with
 * one worker it is that of fleet_dataset_local_shuffle(), so that a synchronous
 * job of n workers trains to the bits of one process that merges n batches.
 * While samples travel memory has them twice.
 *
 *   FLEET_ENOMEM       as loads fail
 *   FLEET_EINVAL       workers differ in seed, pass, batch_size, slots, or in
 *                      the shuffles before
 *   FLEET_EPEER        another worker has failed
 *   FLEET_EUNSUPPORTED this worker was started again in the middle of a job
 *   After a failure each worker has the samples that it had. */
FLEET_API fleet_status fleet_dataset_global_shuffle(fleet_dataset *dataset);

/* fleet_dataset_slots_shuffle - from now on passes see, in these n slots, the
 * values of another of this worker's samples, of one for all of them, and in
 * all other slots those of the sample: what a model loses by it is what the
 * slots are worth to it. A function of (seed, pass, worker), too. Each call
 * takes the place of the one before; n 0: samples have their own values.
 *
 *   FLEET_ENOENT   no slot has that name
 *   FLEET_EINVAL   a slot that is made of other slots: it follows them */
FLEET_API fleet_status fleet_dataset_slots_shuffle(fleet_dataset *dataset,
                                                   const char *const *slots,
                                                   int n);

/* fleet_dataset_release_memory - free all samples in memory. */
FLEET_API fleet_status fleet_dataset_release_memory(fleet_dataset *dataset);

/* fleet_dataset_get_memory_data_size - *samples: how many the last load has
 * brought to this worker; with all_workers those of all, who make this call
 * together (fleet_metrics_sum()). */
FLEET_API fleet_status fleet_dataset_get_memory_data_size(
    fleet_dataset *dataset, int all_workers, int64_t *samples);

/* fleet_dataset_get_shuffle_data_size - the same of those that this worker has
 * in a shuffled order; 0: they have not been shuffled. */
FLEET_API fleet_status fleet_dataset_get_shuffle_data_size(
    fleet_dataset *dataset, int all_workers, int64_t *samples);

/* fleet_dataset_position - where the training of the dataset is: *pass passes
 * are over, and *batch batches of the next one are trained: of this worker, 0
 * unless that one was stopped (train.h) or loaded. The dataset has its files
 * already. Of one that has not trained yet it is where its first pass will go
 * on after a load: where a dataset with these data was, else where one was that
 * is no other dataset's of the handle. Asking takes it from none.
 *
 * Passes over other files count, too: in a program that trains each day's files
 * for so many passes, day 2 loads with FLEET_POSITION_ANEW, or compares with
 * the pass at its start. A warning says when the files are others.
 *
 *   FLEET_EINVAL   the load is of the middle of a pass over other data: what
 *                  differs is named, with both values
 *   FLEET_ESTATE   a dataset without files
 */
FLEET_API fleet_status fleet_dataset_position(fleet_dataset *dataset,
                                              int64_t *pass, int64_t *batch);

/* fleet_dataset_use_statistics_of - standardize with another dataset's numbers
 * (test data with the training data's). Both must standardize as many columns,
 * else FLEET_ESHAPE; does nothing if the other dataset standardizes none. Reads
 * the other dataset's files if its numbers are not known yet, with the errors
 * of reading. */
FLEET_API fleet_status fleet_dataset_use_statistics_of(fleet_dataset *dataset,
                                                       fleet_dataset *other);

#ifdef __cplusplus
}
#endif

#endif
