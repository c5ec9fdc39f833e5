/* ranking.h - places of items among all items, by the dots of vectors: the
 * metrics of retrieval, added up sample by sample, in their order. */
#pragma once

#include <fleet/report.h>

#include "fleet/train/train.h"

/* A vector for each of the items, which are known by their keys. */
typedef struct fl_items {
    int64_t dim, n;
    float *vector; /* blocks of items, number by number: [block][dim][items of a
                      block] */
    size_t vector_capacity;
    uint32_t *slot; /* open addressing; index + 1 of an item, 0 is free */
    size_t n_slot;
    uint64_t *key; /* by item */
    size_t key_capacity;
} fl_items;

typedef struct fl_ranking {
    const fleet_var *user, *item, *label; /* label NULL: all samples count */
    const fleet_var **made_of;            /* inputs on which the item depends */
    int n_made_of;
    fl_items items;
    float *batch_user, *batch_item; /* vectors of a batch */
    size_t user_capacity, item_capacity;
    int64_t *place; /* two of a row: how many items are above, and as high */
    size_t place_capacity;
    int n;
    double sum[FLEET_MOST_RANKINGS];
    fleet_ranking of[FLEET_MOST_RANKINGS];
    int64_t samples; /* that count */
} fl_ranking;

/* FLEET_EINVAL: fleet_evaluate_ranking()'s. To be closed in any case. */
fleet_status fl_ranking_open(fl_ranking *r, const fleet_model *m,
                             const fleet_ranking *metrics, int n);

/* All items of a dataset, by an executor for test. */
fleet_status fl_ranking_read_items(fl_ranking *r, fleet_executor *e,
                                   fleet_dataset *items);

/* The samples of a batch that was run, with both vectors fetched. */
fleet_status fl_ranking_add(fl_ranking *r, fleet_executor *e, int64_t rows);

/* FLEET_EEND: no sample counts. */
fleet_status fl_ranking_result(const fl_ranking *r, fleet_evaluation *out);
void fl_ranking_close(fl_ranking *r);

/* "recall@10" */
enum { FL_RANKING_NAME = 32 };
void fl_ranking_name(const fleet_ranking *r, char name[FL_RANKING_NAME]);

/* Of a name; false: it is none. */
bool fl_ranking_parse(const char *name, fleet_ranking *r);
