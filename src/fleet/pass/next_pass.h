/* next_pass.h - the pass behind the one that is trained, where it is known that
 * there will be one: its samples are being read into memory
 * (fleet_dataset_preload_into_memory()), or the user has said that it is over
 * the same ones (fleet_psgpu_expect_pass()). While the last part of a pass is
 * trained a thread waits for them, lists the first part of the next pass, and
 * copies the rows that the GPU does not have; as the pass ends they are sent.
 *
 * Which batches the next pass has is a guess: that it is shuffled as this one
 * is. When it begins it is compared, and begins as ever where the guess was
 * wrong.
 */
#pragma once

#include "fleet/job/dataset_memory.h"
#include "fleet/pass/pass_list.h"

typedef struct fl_next_pass {
    fl_next_samples samples;
    fl_pass_list list;
    bool is_expected; /* over the same samples; said in this pass */
    bool is_tried;    /* the thread was started in this pass */
    bool is_ready;    /* the thread is over, and its first part is staged */
    bool is_here;     /* that is on the GPU, and the pass has not begun */
} fl_next_pass;

/* Before a batch of the last part is trained: the thread is started once a
 * next pass is known. */
void fl_next_pass_try(fleet_psgpu *g);

/* The pass ends. True: the thread is over, and the next pass's first part can
 * be sent. False: there is none, or its samples are still being read. */
bool fl_next_pass_wait(fleet_psgpu *g);

/* Is the pass that begins the one whose first part the GPU has? */
bool fl_next_pass_is_here(fleet_psgpu *g);

/* It is compared no more, and begins as ever. */
void fl_next_pass_forget(fleet_psgpu *g);
