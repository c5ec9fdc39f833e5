/* data_kit.h - what the tests of src/data share: specs with defaults, all of a
 * stream as bytes that can be compared, packed files. */
#pragma once

#include "data/stream.h"

#define DATA_N(array) ((int)(sizeof(array) / sizeof *(array)))

/* splitmix64 */
uint64_t data_random(uint64_t *state);

/* A spec of one thread and batches of two, all of it ours. */
fl_stream_spec data_spec(fleet_format format, const fleet_slot *slots,
                         int n_slot, const char *const *files, int n_file);

/* All batches of a stream, then how it ended. */
typedef struct data_dump {
    char *bytes; /* each batch's index, rows, values and offsets */
    size_t size, capacity;
    int64_t batches, rows;
    fleet_status status; /* FLEET_EEND when all went well */
    char error[1000];
} data_dump;

data_dump data_read(const fl_stream_spec *spec);
data_dump data_read_n(fl_stream_spec spec, int n_thread);

/* With the n-th allocation failing, for all n until all rows are read: nothing
 * but FLEET_ENOMEM comes of it, and nothing stays open. */
void data_check_memory(const fl_stream_spec *spec, int64_t rows);
bool data_same(const data_dump *a, const data_dump *b);

/* The first batch, which there must be; valid until the next call. */
const fl_batch *data_first(const fl_stream_spec *spec);

/* The stream must end with the status, and say all the words, NULL-ended. */
void data_fails(const char *file, int line, const fl_stream_spec *spec,
                fleet_status want, const char *const *words);
#define DATA_FAILS(spec, want, ...)                                            \
    data_fails(__FILE__, __LINE__, spec, want,                                 \
               (const char *const[]){__VA_ARGS__, NULL})

/* A packed file in the test's folder; its path. */
const char *data_gz(const char *name, const void *data, size_t size);

/* Descriptors of this process, and children, dead or alive, that it has. */
int data_open_fds(void);
int data_children(void);
