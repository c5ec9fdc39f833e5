/* lookup_kit.h - sparse_embedding beside a plain list of rows: cases, and a
 * step in both, to the bit. */
#pragma once

#include "train_kit.h"

#include "runtime/graph/initializer.h"
#include "runtime/store/table_api.h"

/* A table as a list: rows by key, with initial values of the filler. */
typedef struct plain_table {
    fl_filler filler;
    int64_t dim;
    uint64_t *key;
    float *w, *g; /* n rows; the gradient of this step */
    bool *used;   /* got a gradient, ever: it is in the table */
    bool *now;    /* in this step */
    int n;
} plain_table;

enum { MOST_ROWS = 4000, MOST_DIM = 64, MOST_SLOTS = 6 };

typedef struct lookup_slot {
    const char *name;
    int table;     /* which of the case's two */
    int64_t width; /* ids per sample; -1: ragged */
    fleet_combiner combiner;
    int64_t below; /* ids are in [0, below) */
} lookup_slot;

typedef struct lookup_case {
    lookup_slot slot[MOST_SLOTS];
    int n;
    int64_t dim[2], rows;     /* of the tables; modulo */
    unsigned weighted;        /* by bit: slots whose ids have weights */
    int64_t most[MOST_SLOTS]; /* of width -1: rows of so many ids side by side;
                                 0: pooled */
    unsigned keep_first;      /* by bit: of these the first ones */
    int check_ids;            /* of the tables */
    bool concat;              /* else each output has a loss of its own */
    float learning_rate, l2_decay; /* of the tables */
    int64_t batch;
    int threads;
    fleet_initializer first; /* of the tables; all zero: the operator's own */
    const char *device;      /* of the program; NULL: nothing is said */
    int merge;               /* batches per update; 0: 1 */
    float clip, norm_clip;
    const char *optimizer;    /* NULL: sgd, as the list has it */
    fl_rows_maker *make_rows; /* NULL: tables as they are */
} lookup_case;

/* A case, ready to be trained with a rate of 0.5. */
typedef struct lookup_scene {
    const lookup_case *c;
    fleet *f;
    fleet_program *p;
    fleet_var *ids[MOST_SLOTS], *out[MOST_SLOTS], *all, *loss;
    fleet_executor *e;
    plain_table table[2];
    int64_t cols; /* of `all` */
} lookup_scene;

extern const char *const lookup_tables[2]; /* their names */

/* Every way to pool, with weights and without; few ids, so that some stand in a
 * sample twice and the maximum has equal numbers to choose from. */
extern const lookup_case lookup_kit_pooled;

/* Padded slots beside pooled ones: shorter than samples, longer, of one id. */
extern const lookup_case lookup_kit_padded;

void lookup_open(lookup_scene *s, const lookup_case *c);
void lookup_close(lookup_scene *s);
kit_batch *lookup_batch(const lookup_scene *s, int step);
fl_rows *lookup_rows(const lookup_scene *s, int table);

/* Three steps of a case, and in the list. */
void lookup_check(const lookup_case *c);

/* The parameters' hash after three steps. */
uint64_t lookup_hash(const lookup_case *c);
