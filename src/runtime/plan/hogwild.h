/* hogwild.h - locks of parameters that several trainer threads of a process
 * update at the same time: each thread's gradient is an update of its own, from
 * weights that lack the updates that other threads are about to make (F. Niu et
 * al., Hogwild!: a lock-free approach to parallelizing stochastic gradient
 * descent, 2011, arXiv:1106.5730). The paper's threads race for single weights.
 * With these locks an update of up to 16,384 weights, or of a part of a table,
 * is whole: none is lost, and none is half seen.
 *
 * A thread computes on copies: of the dense weights as they were at its batch's
 * start, of the rows as they were when it found them. So a lock is held while a
 * part is copied or updated, and never while anything is computed, and no two
 * locks are held by one thread.
 */
#pragma once

#include <pthread.h>

#include "runtime/store/store.h"

enum { FL_HOGWILD_STRIPES = 64 };

typedef struct fl_hogwild {
    /* of floats [i, i + 1) * FL_BLOCK of flat buffers: stripe i % their
     * number */
    pthread_mutex_t stripe[FL_HOGWILD_STRIPES];
    pthread_mutex_t (*part)[FL_N_PART]; /* of tables, by their numbers */
    int n_table;
} fl_hogwild;

/* Locks for the dense parameters, and for n_table tables. */
fleet_status fl_hogwild_create(int n_table, fl_hogwild **hogwild);
void fl_hogwild_destroy(fl_hogwild *h); /* NULL: fine */

/* Where the block ends that float `at` of a flat buffer is in, or `end` if that
 * comes first; its lock. */
int64_t fl_hogwild_block_end(int64_t at, int64_t end);
pthread_mutex_t *fl_hogwild_block(fl_hogwild *h, int64_t at);

/* Copy a flat buffer's weights, block by block. */
void fl_hogwild_copy(fl_hogwild *h, const fl_flat *g, float *to);
