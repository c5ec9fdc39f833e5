/* memory_preload.h - samples that a thread of its own reads into memory, while
 * passes over other samples go on. */
#pragma once

#include <stdatomic.h>

#include "data/sample_memory.h"

typedef struct fl_memory_preload fl_memory_preload;

/* Begin fl_sample_memory_load() of a spec's files, which are all of `files`
 * from first_file on, or some. Kept are copies, but for slots and texts, which
 * must outlive the preload. */
fleet_status fl_memory_preload_start(fl_memory_preload **preload,
                                     const fl_stream_spec *spec, int first_file,
                                     const fl_paths *files,
                                     const fl_memory_limit *limit);

/* Until it is over, which it was if *over; else the job's status, of the spec's
 * kind, has ended the wait. m gets the samples. */
fleet_status fl_memory_preload_wait(fl_memory_preload *preload,
                                    const fl_stream_spec *spec, bool *over,
                                    fl_sample_memory *m);

/* From another thread: until they are read, or *stop is set and it is woken.
 * The samples, and their files, which stay the preload's until the wait above
 * has given them away; NULL: it was stopped, or reading has failed. */
fl_sample_memory *fl_memory_preload_look(fl_memory_preload *preload,
                                         const atomic_bool *stop,
                                         const fl_paths **files);
void fl_memory_preload_wake(fl_memory_preload *preload);
bool fl_memory_preload_is_over(fl_memory_preload *preload);

/* At any time: it is stopped. NULL is fine. */
void fl_memory_preload_destroy(fl_memory_preload *preload);
