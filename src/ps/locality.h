/* locality.h - on which machine a process runs, so that two on the same one
 * talk by ipc: the boot of the kernel, its network and its mount namespace. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

/* "boot/net/mnt"; "" if it cannot be found out, which equals no other. */
void fl_locality_text(char text[160]);

/* "host:pid", for messages. */
void fl_who_text(char text[96]);

/* A folder for sockets that this user alone may enter: FLEET_IPC_FOLDER, which
 * the program that started this one removes (FLEET_EINVAL if it is no such
 * folder), or one of our own, which is removed with its files. */
typedef struct fl_ipc_folder {
    char path[64]; /* "": none */
    bool ours;
    bool again; /* another process has made it, maybe for several servers */
} fl_ipc_folder;

fleet_status fl_ipc_folder_open(fl_ipc_folder *f);
/* The one that an earlier process has made at that path: it is made again if
 * it is gone. FLEET_EIO: the path is of something else. */
fleet_status fl_ipc_folder_again(fl_ipc_folder *f, const char *path);
/* One that was made again goes when it is empty. */
void fl_ipc_folder_close(fl_ipc_folder *f);

enum { FL_STREAM_NAME = 32 };

/* What messages call a stream of a job: the last ones of n_stream are heter
 * workers. */
static inline const char *fl_stream_name(char text[FL_STREAM_NAME],
                                         uint32_t stream, int n_stream,
                                         int n_heter)
{
    const uint32_t first = (uint32_t)(n_stream - n_heter);

    if (stream < first || stream >= (uint32_t)n_stream)
        snprintf(text, FL_STREAM_NAME, "worker %u", (unsigned)stream);
    else
        snprintf(text, FL_STREAM_NAME, "heter worker %u",
                 (unsigned)(stream - first));
    return text;
}
