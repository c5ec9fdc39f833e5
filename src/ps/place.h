/* place.h - where a process runs, so that two on one machine talk by ipc: the
 * boot of the kernel, its network and its mount namespace. */
#ifndef FL_PS_PLACE_H
#define FL_PS_PLACE_H

#include <stddef.h>

#include "base/error.h"

/* "boot/net/mnt"; "" where it cannot be told, which is like nothing. */
void fl_place_text(char text[160]);

/* "host:pid", for messages. */
void fl_who_text(char text[96]);

/* A random number of this process and moment. */
uint64_t fl_nonce(void);

/* A folder of this user alone for sockets; remove it with its files. */
fleet_status fl_private_folder(char path[64]);
void fl_private_folder_remove(const char *path);

#endif
