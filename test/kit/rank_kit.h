/* rank_kit.h - ranks as threads that train the same small model, each with its
 * batches, and what they end with. */
#pragma once

#include "workers_kit.h"
#include "fake_comm.h"

enum { RANK_MOST_FLOATS = 2000 };

/* Batch b is rank b mod n's. */
typedef struct rank_lesson {
    kit_options how;
    fl_training also; /* local, half, dgc, bucket, sharded; how.choose takes
                         their place, by the fields of a strategy */
    int batches, passes;
    int64_t last; /* rows of the last batch */
    void (*prepare)(kit_model *m);
    void (*spoil)(work *k, int rank); /* NULL: batches are as they are */
    bool shared; /* gradients lie where ranks reduce them */
    int fail_at; /* which call of rank 1 fails */

    float weight[FAKE_MOST_RANKS][RANK_MOST_FLOATS];
    int64_t updates[FAKE_MOST_RANKS], steps[FAKE_MOST_RANKS];
    double first_loss[FAKE_MOST_RANKS];
    int calls[FAKE_MOST_RANKS];
    fleet_status status[FAKE_MOST_RANKS];
    char error[FAKE_MOST_RANKS][300];
} rank_lesson;

/* All parameters. */
fl_flat *rank_group(const kit_model *m);

void rank_model(kit_model *m, const rank_lesson *s); /* no executor yet */
void rank_executor(kit_model *m);

/* What a rank does: for fake_group_run(). */
void rank_learn(fake_rank *r, void *lesson);

/* So many ranks; whatever becomes of them. */
void rank_try(rank_lesson *s, int ranks);

/* None fails, and all end with the same weights. */
void rank_train(rank_lesson *s, int ranks);
