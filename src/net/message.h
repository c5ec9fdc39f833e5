/* message.h - messages between workers and servers, read from packets and
 * written into them; docs/protocol.md has the grammar, message.def all kinds. A
 * message is a packet: frame 0 is the header (and, in an answer, what answers
 * add), frame 1 the sections if there are any, then one frame for each column
 * of each section, in their order.
 *
 * Everything is little-endian, and read byte by byte: frames may be misaligned.
 */
#pragma once

#include <string.h>

#include "base/hash.h"
#include "net/packet.h"

enum {
    FL_MSG_MAGIC = 0x4d544c46, /* "FLTM" */
    FL_MSG_VERSION = 1,        /* stays so until the first release */
    FL_MSG_HEAD_SIZE = 64,
    FL_MSG_ANSWER_SIZE = 24,
    FL_MSG_SECTION_SIZE = 32,
    FL_MSG_MOST_SECTION = 64,
    FL_MSG_PIECE_BYTES =
        4 << 20 /* a request is cut into pieces of about that */
};

/* Kinds of messages: FL_MSG_HELLO, ... */
typedef enum fl_msg_kind {
    FL_MSG_NO_KIND,
#define FL_MESSAGE(KIND, name, flags, handler) FL_MSG_##KIND,
#include "net/message.def"
#undef FL_MESSAGE
    FL_MSG_KINDS
} fl_msg_kind;

/* What is so of all messages of a kind. */
enum fl_kind_flags {
    FL_KIND_NEEDS_STORE = 1, /* waits while a command has the lane's store */
    FL_KIND_OF_ANYBODY = 2   /* taken of every sender, and at any time; of other
                                kinds only what this job's workers send */
};

enum {
    FL_MSG_END_OF_STEP = 1, /* the last piece of its step */
    FL_MSG_PASS_END = 2,    /* in place of a contribution: the pass is over */
    FL_MSG_LEAVE = 4,       /* the stream is over */
    FL_MSG_TRACE = 8,
    FL_MSG_COMMAND = 16, /* in place of a contribution: a save, a load, a
                            write */
    FL_MSG_CONTROL = FL_MSG_PASS_END | FL_MSG_LEAVE | FL_MSG_COMMAND,
    FL_MSG_CRC_ALL = 32, /* the sum covers columns too, not head and sections
                            alone */
    FL_MSG_STOP = 64,    /* of a contribution: its worker wants that all workers
                         stop after this update; of its answer, in sync: one
                         of them does */
    FL_MSG_FLAGS = 127
};

/* What an answer says of its request. */
typedef enum fl_msg_status {
    FL_ANSWER_OK,
    FL_ANSWER_WAITING, /* parked: missing_stream has not sent its part */
    FL_ANSWER_GAP,     /* a step or piece before this one is missing: send again
                          from applied + 1 */
    FL_ANSWER_NORMS,   /* the step waits for its CLIP; sums of squares inside */
    FL_ANSWER_TAKEN,   /* HELLO: another process has that stream; try again */
    FL_ANSWER_FENCED,  /* another process has replaced this one */
    FL_ANSWER_REFUSED, /* invalid, now and later; TEXT says why */
    FL_ANSWER_FAILED,  /* a command failed; TEXT says why */
    FL_ANSWER_COMING   /* HELLO: as OK, but the server is loading: ask again */
} fl_msg_status;

/* What a section holds: FL_SECTION_DENSE, ... */
typedef enum fl_section_op {
    FL_SECTION_NO_OP,
#define FL_SECTION(OP, value) FL_SECTION_##OP,
#include "net/message.def"
#undef FL_SECTION
    FL_SECTION_OPS
} fl_section_op;

/* How the values of a section are written, of DENSE and ROWS alone: as floats,
 * or as ps/codec.h says. In a PULL: how the values of its answer are to be. */
typedef enum fl_codec {
    FL_CODEC_F32,
    FL_CODEC_F16,
    FL_CODEC_BF16,
    FL_CODEC_INT8,
    FL_N_CODEC
} fl_codec;

/* A bit beside the codec, of ROWS alone: keys are in rising order, and packed
 * as ps/codec_keys.h says. */
enum { FL_PACKED_KEYS = 0x80 };

/* How the numbers of a REDUCE are joined, and what for: its section has that in
 * place of a table's number. */
typedef enum fl_reduction {
    FL_REDUCTION_SUM,
    FL_REDUCTION_MAX,
    FL_REDUCTION_MIN,
    FL_REDUCTION_PASS /* a sum, at the end of a pass */
} fl_reduction;

/* Columns, in this order. Runs come with their column; n_key may stand without
 * keys, as in an answer in its request's order. */
enum {
    FL_COLUMN_RUNS = 1,      /* u16 bucket, u16 0, u32 n: n_run of them */
    FL_COLUMN_KEYS = 2,      /* u64: n_key of them */
    FL_COLUMN_COUNTS = 4,    /* u32: n_key of them */
    FL_COLUMN_VALUES = 8,    /* f32 (NORMS, REDUCE: f64), any number; or by the
                                codec */
    FL_COLUMN_VERSIONS = 16, /* u64: n_key of them */
    FL_COLUMN_BYTES = 32,    /* any number */
    FL_COLUMNS = 63,
    FL_N_COLUMN = 6
};

/* Where columns are in fl_msg.column: by number of the bit. */
enum { FL_AT_KEYS = 1, FL_AT_VALUES = 3, FL_AT_VERSIONS = 4, FL_AT_BYTES = 5 };

/* A bit of a heartbeat's request, and of its answer's. */
#define FL_MSG_OF_HEARTBEAT ((uint64_t)1 << 63)

typedef struct fl_msg_head {
    uint8_t version, kind;
    uint16_t flags;
    uint64_t job;        /* fl_msg_job(); strays of another job are refused */
    uint32_t generation; /* + 1 per restore or rollback; both sides' own */
    uint32_t view;       /* ps/lane_view.h */
    uint32_t stream, incarnation;
    uint64_t step;
    uint64_t request; /* matches answers only */
    uint32_t peer; /* nonce of the server's process: of the one that a request
                      is for, 0 for any; of the one that answers */
    uint32_t timeout_ms;
    uint16_t piece;
    uint8_t n_section, status;
} fl_msg_head;

/* What an answer adds. */
typedef struct fl_msg_answer {
    uint64_t applied, durable; /* the stream's last step that is; COMING: bytes
                                  that are done, and all (0: unknown) */
    uint32_t credit_bytes;     /* that may be in flight from now on */
    uint32_t missing_stream;   /* WAITING: whose part is missing */
} fl_msg_answer;

typedef struct fl_section {
    uint32_t table; /* which, by name order; of params for DENSE: unused */
    uint16_t op;
    uint8_t codec; /* an fl_codec, and FL_PACKED_KEYS */
    uint8_t columns;
    uint32_t n_run, n_key;
    uint64_t version; /* of the rows; 0: of now */
    float learning_rate;
    uint32_t n_batch;
} fl_section;

typedef struct fl_msg {
    fl_msg_head head;
    fl_msg_answer answer; /* of kind ANSWER */
    fl_section section[FL_MSG_MOST_SECTION];
    /* by section and column's bit number; data NULL: the message lacks it */
    fl_frame column[FL_MSG_MOST_SECTION][FL_N_COLUMN];
} fl_msg;

/* Read a packet. Every number is checked against what arrived: sizes of
 * columns, of frames, flags, kinds. FLEET_EFORMAT with a text otherwise, and
 * then `msg` holds the head at most. A header of another version is
 * FLEET_EUNSUPPORTED with msg->head.version, kind, stream and request set, so
 * that it can be answered. What columns hold is the reader's to check. The
 * frames stay the packet's. */
fleet_status fl_msg_decode(const fl_packet *p, fl_msg *msg);

/* A job's number: the id's hash, and which run of the job it is; 0: not known
 * yet. */
static inline uint64_t fl_msg_job(const char *id, uint32_t run)
{
    return (fl_hash(id, strlen(id), 0) & ~(uint64_t)UINT32_MAX) | run;
}

static inline uint32_t fl_msg_run(uint64_t job)
{
    return (uint32_t)job;
}

/* Two runs of one job, or one. */
static inline bool fl_msg_same_id(uint64_t job, uint64_t other)
{
    return (job ^ other) >> 32 == 0;
}

static inline fl_codec fl_codec_of(const fl_section *s)
{
    return (fl_codec)(s->codec & ~FL_PACKED_KEYS);
}

static inline bool fl_has_packed_keys(const fl_section *s)
{
    return s->codec & FL_PACKED_KEYS;
}

/* Key i of a column, wherever it lies. */
static inline uint64_t fl_key_at(const fl_frame *keys, int64_t i)
{
    uint64_t key;

    memcpy(&key, (const char *)keys->data + (size_t)i * sizeof key, sizeof key);
    return key;
}

/* Write one: begin, sections with their columns in order, end. The head's
 * n_section is counted by these. Failures are sticky: _end() reports. */
typedef struct fl_msg_writer {
    fl_packet *packet;
    fl_msg_head head;
    fl_msg_answer answer;
    fl_section section[FL_MSG_MOST_SECTION];
    int n_section;
    fleet_status status;
} fl_msg_writer;

void fl_msg_begin(fl_msg_writer *w, fl_packet_pool *pool,
                  const fl_msg_head *head);

/* `columns` of the section are set by fl_msg_column(). NULL once it failed. */
fl_section *fl_msg_section(fl_msg_writer *w, fl_section_op op, uint32_t table);

/* Memory for a column (its bit) of the section begun last; columns in rising
 * order. NULL once it failed. */
void *fl_msg_column(fl_msg_writer *w, int column, size_t size);

/* The column begun last is not as long as it was said to be. */
void fl_msg_shorten(fl_msg_writer *w, size_t size);
void fl_msg_text(fl_msg_writer *w, fl_section_op op, const char *text);

/* All sections of another message, as they are. */
void fl_msg_copy_sections(fl_msg_writer *w, const fl_msg *msg);

/* The packet, with its sum; whole: the sum covers columns too. On failure what
 * there was is dropped. */
fleet_status fl_msg_end(fl_msg_writer *w, bool whole, fl_packet **packet);

/* The bytes of a text section as a 0-ended text for fl_free(); NULL: there is
 * no such section, or no memory. */
char *fl_msg_get_text(const fl_msg *msg, fl_section_op op);

/* A status that the head's step, or request, says; `otherwise` if it is none of
 * a failure. */
static inline fleet_status fl_msg_code(uint64_t code, fleet_status otherwise)
{
    return code > 0 && code < 256 ? (fleet_status)code : otherwise;
}

/* What errors call a kind. */
const char *fl_msg_kind_name(fl_msg_kind kind);
