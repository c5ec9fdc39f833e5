/* nccl_lib.h - the part of NCCL that is used. The library is opened when the
 * first communicator is, and nothing of it is needed to build: this header is
 * its binary interface, in the numbers and layouts of NCCL's own <nccl.h>, 2.14
 * to 2.28, which has kept them.
 */
#pragma once

#include "base/error.h"

enum {
    FL_NCCL_LEAST = 21400, /* 2.14: calls that do not wait */
    FL_NCCL_OK = 0,
    FL_NCCL_REMOTE = 6,
    FL_NCCL_IN_PROGRESS = 7,
    FL_NCCL_MAGIC = (int)0xcafebeef
};

typedef enum fl_nccl_type {
    FL_NCCL_U8 = 1,
    FL_NCCL_I32 = 2,
    FL_NCCL_I64 = 4,
    FL_NCCL_F32 = 7,
    FL_NCCL_F64 = 8
} fl_nccl_type;

typedef enum fl_nccl_op {
    FL_NCCL_SUM = 0,
    FL_NCCL_MAX = 2,
    FL_NCCL_MIN = 3
} fl_nccl_op;

typedef struct fl_nccl_comm fl_nccl_comm;

typedef struct fl_nccl_id {
    char bytes[128];
} fl_nccl_id;

/* ncclConfig_t of 2.14; later ones take it, and go by size and version. */
typedef struct fl_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} fl_nccl_config;

/* result, name, arguments; a stream is a cudaStream_t */
#define FL_NCCL_MAP(XX)                                                        \
    XX(int, GetVersion, (int *version))                                        \
    XX(int, GetUniqueId, (fl_nccl_id * id))                                    \
    XX(int, CommInitRankConfig,                                                \
       (fl_nccl_comm * *comm, int size, fl_nccl_id id, int rank,               \
        fl_nccl_config *config))                                               \
    XX(int, CommFinalize, (fl_nccl_comm * comm))                               \
    XX(int, CommDestroy, (fl_nccl_comm * comm))                                \
    XX(int, CommAbort, (fl_nccl_comm * comm))                                  \
    XX(int, CommGetAsyncError, (fl_nccl_comm * comm, int *result))             \
    XX(const char *, GetErrorString, (int result))                             \
    XX(const char *, GetLastError, (fl_nccl_comm * comm))                      \
    XX(int, GroupStart, (void))                                                \
    XX(int, GroupEnd, (void))                                                  \
    XX(int, AllReduce,                                                         \
       (const void *in, void *out, size_t n, int type, int op,                 \
        fl_nccl_comm *comm, void *stream))                                     \
    XX(int, ReduceScatter,                                                     \
       (const void *in, void *out, size_t n, int type, int op,                 \
        fl_nccl_comm *comm, void *stream))                                     \
    XX(int, AllGather,                                                         \
       (const void *in, void *out, size_t n, int type, fl_nccl_comm *comm,     \
        void *stream))                                                         \
    XX(int, Broadcast,                                                         \
       (const void *in, void *out, size_t n, int type, int root,               \
        fl_nccl_comm *comm, void *stream))                                     \
    XX(int, Send,                                                              \
       (const void *in, size_t n, int type, int peer, fl_nccl_comm *comm,      \
        void *stream))                                                         \
    XX(int, Recv,                                                              \
       (void *out, size_t n, int type, int peer, fl_nccl_comm *comm,           \
        void *stream))

typedef struct fl_nccl_lib {
#define FL_NCCL_MEMBER(result, name, arguments) result(*name) arguments;
    FL_NCCL_MAP(FL_NCCL_MEMBER)
#undef FL_NCCL_MEMBER
    int version; /* 22809: 2.28.9 */
} fl_nccl_lib;

/* libnccl.so.2: in the folder FLEET_NCCL_PATH if that is set, else where the
 * loader and this code's own run path say. Opened once, and never closed.
 * FLEET_EUNSUPPORTED: missing, too old, without a function that is needed, or
 * for real GPUs where these are emulated. */
fleet_status fl_nccl_lib_open(const fl_nccl_lib **lib);
