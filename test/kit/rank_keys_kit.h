/* rank_keys_kit.h - keys of ranks for tests, from folders as jobs have them. */
#pragma once

#include "net/keys.h"
#include "runtime/device/comm.h"

/* Has this build libsodium? */
bool rank_keys_can(void);

/* Skips the test if it has not. */
void rank_keys_need(void);

/* A folder in the test's with keys of so many workers, made once; its path. */
const char *rank_keys_make(const char *name, int size);

/* What one rank has of it. */
void rank_keys_read(fl_rank_keys *k, const char *folder, int rank, int size);
void rank_keys_done(fl_rank_keys *k);
