/* norm_list.h - squares of the gradients of a whole update, whatever processes
 * keep the parameters, in the order in which they are added up: per block of
 * each parameter, by name, then per bucket of each table, by name (norm.h).
 * Zeros, which change no sum, where there is no gradient. */
#pragma once

#include "runtime/store/norm.h"
#include "runtime/store/store.h"

typedef struct fl_norm_list {
    const void **item; /* fl_param, then fl_rows */
    int64_t *first;    /* by item, and the end: where its squares are */
    int n_item;
    double *sum;
} fl_norm_list;

/* Zeros for all that the store has, or knows by name. */
fleet_status fl_norm_list_make(fl_norm_list *all, const fl_store *s);
void fl_norm_list_done(fl_norm_list *all);

/* Of a parameter or a table of the store; n of them. */
double *fl_norm_list_of(const fl_norm_list *all, const void *item, int64_t *n);

double fl_norm_list_sum(const fl_norm_list *all);
float fl_norm_list_clip(const fl_norm_list *all, const fl_store *s);
