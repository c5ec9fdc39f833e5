/* base.h - what every other header of libfleet stands on: export and version,
 * statuses and their texts, log lines, element types.
 *
 * Errors: every call that can fail returns a fleet_status, or NULL. The text of
 * the calling thread's last failure, with the names and numbers in it, is what
 * fleet_last_error() gives. Nothing in libfleet exits or aborts; log lines go
 * to stderr unless the host takes them.
 *
 * Threads: all of this header may be called from any thread.
 */
#ifndef FLEET_BASE_H
#define FLEET_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifndef FLEET_API
#define FLEET_API __attribute__((visibility("default")))
#endif

#define FLEET_VERSION_MAJOR 0
#define FLEET_VERSION_MINOR 1
#define FLEET_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* One list makes the codes, their names and their texts. Codes never change
 * their number; new ones go at the end. */
#define FLEET_STATUS_MAP(XX)                                                   \
    XX(OK, 0, "success")                                                       \
    XX(ENOMEM, 1, "out of memory")                                             \
    XX(EINVAL, 2, "invalid argument")                                          \
    XX(ESHAPE, 3, "shapes do not fit")                                         \
    XX(EDTYPE, 4, "element types do not fit")                                  \
    XX(EEXIST, 5, "name already taken")                                        \
    XX(ENOENT, 6, "no such thing")                                             \
    XX(EIO, 7, "input or output failed")                                       \
    XX(EFORMAT, 8, "malformed input")                                          \
    XX(ECORRUPT, 9, "damaged file")                                            \
    XX(ECONFIG, 10, "wrong configuration")                                     \
    XX(EUNSUPPORTED, 11, "not supported")                                      \
    XX(ENUMERIC, 12, "not a finite number")                                    \
    XX(ESTATE, 13, "call out of order")                                        \
    XX(ECHILD, 14, "child process failed")                                     \
    XX(ETIMEDOUT, 15, "deadline passed")                                       \
    XX(EEND, 16, "end of data")                                                \
    XX(EPEER, 17, "another process of the job is gone")                        \
    XX(ENODEVICE, 18, "no such device, or it cannot be used")

typedef enum fleet_status {
#define FLEET_STATUS_CODE(name, value, text) FLEET_##name = value,
    FLEET_STATUS_MAP(FLEET_STATUS_CODE)
#undef FLEET_STATUS_CODE
} fleet_status;

/* fleet_version - the version of the library that runs, such as "0.1.0"; the
 * macros above give that of the header that was compiled. Never NULL. */
FLEET_API const char *fleet_version(void);

/* fleet_strerror - the general text of a code. Never NULL. */
FLEET_API const char *fleet_strerror(fleet_status status);

/* fleet_status_name - "FLEET_ESHAPE" of FLEET_ESHAPE. Never NULL. */
FLEET_API const char *fleet_status_name(fleet_status status);

/* fleet_last_status - the code that goes with fleet_last_error(), for calls
 * that return a pointer; FLEET_OK if nothing has failed yet. After a call that
 * succeeds neither of them means anything. */
FLEET_API fleet_status fleet_last_status(void);

/* fleet_last_error - the text of this thread's last failure, "" if there was
 * none. Valid until the thread's next failing call. Never NULL. */
FLEET_API const char *fleet_last_error(void);

/* Lines below the handle's level are not made. */
typedef enum fleet_log_level {
    FLEET_LOG_DEFAULT, /* FLEET_LOG_INFO */
    FLEET_LOG_DEBUG,
    FLEET_LOG_INFO,
    FLEET_LOG_WARNING,
    FLEET_LOG_ERROR,
    FLEET_LOG_SILENT
} fleet_log_level;

/* Receives one line, without its newline. Called from any thread of the
 * handle, one call at a time; it must not call back into the same handle. */
typedef void fleet_log_callback(void *user, fleet_log_level level,
                                const char *line);

/* Element types. FLEET_INT64 also holds feature ids, which are 64 unsigned
 * bits: an id of 2^63 or more reads as a negative number. */
typedef enum fleet_dtype {
    FLEET_FLOAT32 = 1,
    FLEET_INT64 = 2,
    FLEET_INT32 = 3,
    FLEET_UINT8 = 4,
    FLEET_BFLOAT16 = 5, /* inside of a training with strategy.amp alone */
    FLEET_FLOAT16 = 6,  /* the same, on a GPU */
    FLEET_FLOAT64 = 7   /* of states of metrics alone */
} fleet_dtype;

/* fleet_dtype_name - "float32"; "?" for what is not an element type. */
FLEET_API const char *fleet_dtype_name(fleet_dtype dtype);

/* fleet_dtype_size - bytes of an element, 0 for what is not a type. */
FLEET_API size_t fleet_dtype_size(fleet_dtype dtype);

/* fleet_hash_text - the feature id of a text value: XXH64 with the slot's
 * position as seed, so that equal texts in different slots are different
 * features. What the readers use; for programs that build their own feeds. NULL
 * is the empty text. */
FLEET_API uint64_t fleet_hash_text(const char *text, size_t length,
                                   uint64_t slot);

#ifdef __cplusplus
}
#endif

#endif
