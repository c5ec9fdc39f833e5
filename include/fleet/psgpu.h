/* psgpu.h - GPU-PS: tables whose home is the host's memory, or a file on its
 * disk, and whose rows of one pass are in a GPU's memory while it is trained
 * (docs/gpu-ps.md).
 *
 * With strategy.a_sync_configs.use_ps_gpu, in one process:
 *
 *   fleet_psgpu *g = fleet_psgpu_create(f, NULL);
 *   fleet_psgpu_init_gpu_ps(g, (int[]){0}, 1);
 *   fleet_psgpu_set_dataset(g, dataset);       of fleet_in_memory_dataset()
 *   fleet_psgpu_load_into_memory(g);
 *   for each pass:
 *       fleet_psgpu_begin_pass(g);
 *       fleet_train_from_dataset(executor, dataset, NULL, &result);
 *       fleet_psgpu_end_pass(g);
 *   fleet_psgpu_finalize(g);
 *
 * What is trained has the bits of the same training without use_ps_gpu on the
 * same GPU. As in Paddle Fleet's PSGPU, except that slots need no numbers for
 * names, that there may be several tables, and that a pass whose rows do not
 * fit is cut into parts.
 *
 * Without a call of these, training is FLEET_ESTATE: the field is never without
 * effect in silence. Programs for test find rows at home.
 *
 * Threads: one at a time for a handle.
 */
#ifndef FLEET_PSGPU_H
#define FLEET_PSGPU_H

#include <fleet/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fleet;
typedef struct fleet_psgpu fleet_psgpu;

/* All-zero fields are defaults. */
typedef struct fleet_psgpu_options {
    int64_t memory_bytes; /* that rows may take of the GPU's memory, with what
                             finds them; 0: as much as it gives. A pass that
                             needs more is cut into parts, of which two fit */
    const char *folder;   /* copied: each pass that begins is noted there, in
                             gpu-ps-pass.json, until the process ends by itself;
                             made if it is not there. After a kill the next
                             process names, at its first pass, what had begun
                             and is not in what it has loaded. NULL: no note */
} fleet_psgpu_options;

/* fleet_psgpu_create - the passes of a handle, which has one such object, and
 * frees it with itself. options may be NULL. NULL: FLEET_EINVAL; FLEET_EEXIST,
 * it has one; FLEET_ENOMEM. */
FLEET_API fleet_psgpu *fleet_psgpu_create(struct fleet *fleet,
                                          const fleet_psgpu_options *options);

/* fleet_psgpu_set_slot_vector - the slots whose ids are looked up on the GPU:
 * n names, copied. Without this call they are all that the program looks up;
 * with it fleet_psgpu_begin_pass() compares. n 0: as without the call.
 * FLEET_EINVAL; FLEET_ESTATE in a pass; FLEET_ENOMEM. */
FLEET_API fleet_status fleet_psgpu_set_slot_vector(fleet_psgpu *psgpu,
                                                   const char *const *slots,
                                                   int n);

/* fleet_psgpu_set_slot_dim_vector - of each of these slots, in their order, the
 * dim of its table, for fleet_psgpu_begin_pass() to compare. FLEET_EINVAL: not
 * as many as slots were named, or a dim below 1; FLEET_ESTATE in a pass;
 * FLEET_ENOMEM. */
FLEET_API fleet_status fleet_psgpu_set_slot_dim_vector(fleet_psgpu *psgpu,
                                                       const int64_t *dims,
                                                       int n);

/* fleet_psgpu_init_gpu_ps - the GPUs, by number: this version takes one, on
 * which fleet_program_place() has placed the program. FLEET_EINVAL;
 * FLEET_EUNSUPPORTED, n is not 1; FLEET_ESTATE in a pass. */
FLEET_API fleet_status fleet_psgpu_init_gpu_ps(fleet_psgpu *psgpu,
                                               const int *devices, int n);

/* fleet_psgpu_set_dataset - what passes are over: one of
 * fleet_in_memory_dataset(), of the same handle. FLEET_EINVAL; FLEET_ESTATE, it
 * is a queue dataset, or a pass has begun. */
FLEET_API fleet_status fleet_psgpu_set_dataset(fleet_psgpu *psgpu,
                                               fleet_dataset *dataset);

/* fleet_psgpu_load_into_memory - fleet_dataset_load_into_memory() of that
 * dataset, whose errors it has. FLEET_ESTATE: there is none, or a pass has
 * begun. */
FLEET_API fleet_status fleet_psgpu_load_into_memory(fleet_psgpu *psgpu);

/* fleet_psgpu_begin_pass - list the ids of the dataset's next pass, or of what
 * is left of one that was stopped, by all threads of the handle, and bring
 * their rows, with the optimizer's numbers of them, into the GPU's memory.
 * Until the end of the pass the samples stay as they are: a shuffle comes
 * before it. After fleet_minimize().
 *
 *   FLEET_ESTATE    a pass has begun; a call above is missing; use_ps_gpu is 0
 *   FLEET_EINVAL    the slots, or their dims, are not those of the program; the
 *                   program is on another GPU
 *   FLEET_EUNSUPPORTED  no table of the program can have rows on a GPU
 *   FLEET_ENOMEM    memory; or the rows of one merge group are more than
 *                   memory_bytes, or than the GPU has
 *   FLEET_EIO, FLEET_ECORRUPT  of rows that are in a file; FLEET_EIO also if
 *                   the first pass cannot be noted in the folder of the
 *                   options; of a later one a line of the log says so
 *
 * A table that has a life or an accessor, whose lookups are guarded for the
 * CPU, or whose ids become sequences, stays at home as in any program on a GPU;
 * a line of the log names it. On failure no pass has begun. */
FLEET_API fleet_status fleet_psgpu_begin_pass(fleet_psgpu *psgpu);

/* fleet_psgpu_expect_pass - in a pass: another one will follow it, over the
 * same samples. It is listed while this one is trained, and rows that both need
 * stay on the GPU at the end of this one. Samples that are being read
 * (fleet_dataset_preload_into_memory()) say by themselves that another pass
 * follows. If none does rows stay until fleet_psgpu_finalize(). FLEET_ESTATE:
 * no pass has begun. */
FLEET_API fleet_status fleet_psgpu_expect_pass(fleet_psgpu *psgpu);

/* fleet_psgpu_end_pass - the rows go home, and their memory on the GPU is free.
 * Where a next pass is known (fleet_psgpu_expect_pass()), and its first rows
 * are prepared, these come, and rows that both passes need stay on the GPU
 * until the next one begins, or fleet_psgpu_finalize().
 * FLEET_ESTATE: no pass has begun, or one is being trained. On another failure
 * they are still on the GPU, and the call may be made again. */
FLEET_API fleet_status fleet_psgpu_end_pass(fleet_psgpu *psgpu);

/* fleet_psgpu_dump_to_mem - the host's memory has what the GPU has, and the
 * pass goes on. Saves, hashes, and reads of rows do as much themselves. Without
 * a pass there is nothing to do. */
FLEET_API fleet_status fleet_psgpu_dump_to_mem(fleet_psgpu *psgpu);

/* fleet_psgpu_finalize - end a pass that has begun, and free the object. On
 * failure of that rows are as before the pass where they have not come home, an
 * error says so, and the object is gone all the same. NULL: FLEET_EINVAL. */
FLEET_API fleet_status fleet_psgpu_finalize(fleet_psgpu *psgpu);

#ifdef __cplusplus
}
#endif

#endif /* FLEET_PSGPU_H */
