/* C interface of the tensor recorder, for Python's ctypes and other languages. With
 * gpu_recorder_c.h: the only symbols that libstallcast_capture.so exports.
 *
 * Every function that returns int returns STALLCAST_OK, STALLCAST_USAGE (the call itself was wrong:
 * a null pointer, a wrong shape, a call after close) or STALLCAST_FAILURE (disk full, no such
 * folder, damaged file, ...). After a failure stallcast_last_error() gives one line: what, where,
 * remedy. No exception leaves the library. Texts are UTF-8, ended by NUL, and copied.
 *
 * A recorder writes one sequence. Calls on one recorder must not overlap; different recorders are
 * independent. Call order:
 *   open, set_*, write* (prompt), begin_decode, write* (decoded tokens), close, free. */
#ifndef STALLCAST_CAPTURE_RECORDER_C_H_
#define STALLCAST_CAPTURE_RECORDER_C_H_

#include <stdint.h>

#if defined(__GNUC__)
#define STALLCAST_API __attribute__((visibility("default")))
#else
#define STALLCAST_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a struct or a meaning changes; compare with stallcast_abi_version(). */
#define STALLCAST_ABI_VERSION 2

enum { STALLCAST_OK = 0, STALLCAST_USAGE = 1, STALLCAST_FAILURE = 2 };
/* Tensor kinds. Queries and keys are after rotary embedding. */
enum { STALLCAST_QUERY = 1, STALLCAST_KEY = 2, STALLCAST_VALUE = 3, STALLCAST_GATE = 4 };
enum { STALLCAST_BF16 = 1, STALLCAST_FP16 = 2, STALLCAST_FP32 = 3 };

typedef struct stallcast_recorder stallcast_recorder;

/* A name and a value; an array of them ends with a null name. */
typedef struct stallcast_pair {
  const char* name;
  const char* value;
} stallcast_pair;

/* What is traced. Texts may be null (empty). */
typedef struct stallcast_trace_info {
  /* The model. */
  const char* model_name;
  int32_t layers;
  int32_t query_heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t hidden; /* 0: unknown, as the next two */
  int32_t intermediate;
  int32_t vocabulary;
  int32_t inverse_frequency_count;
  /* Rotary embedding as the model used it. */
  const double* inverse_frequencies; /* may be null: then they follow from rope_theta */
  double rope_theta;
  double rope_attention_scaling; /* multiplies cos and sin; 0 means 1 */
  const char* rope_type;         /* "default", "llama3", ... */
  double softmax_scale;          /* 0 means 1 / sqrt(head_dim) */
  /* The run. */
  const char* machine;              /* GPU and host in words */
  const char* provenance;           /* who captured what, with which command */
  const char* created;              /* ISO 8601, UTC */
  const stallcast_pair* software;   /* may be null */
  const stallcast_pair* parameters; /* may be null */
} stallcast_trace_info;

/* Where a layer's attention is more than softmax(scale q k) v over the token and all before it. */
typedef struct stallcast_attention {
  int32_t window;       /* a query sees so many last tokens, its own included; 0: all */
  int32_t chunk;        /* a query sees its own chunk of so many tokens only; 0: all */
  double soft_cap;      /* a logit becomes cap * tanh(logit / cap); 0: none */
  double softmax_scale; /* this and the next three: 0: the model's */
  int32_t query_heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t absent;      /* not 0: the layer has no keys */
  int32_t sink_count;  /* 0, or as many as query heads */
  const double* sinks; /* of each query head a logit without a value */
} stallcast_attention;

/* A mixture of experts in place of the MLP. */
typedef struct stallcast_experts {
  int32_t count;
  int32_t per_token;    /* that the router chooses */
  int32_t intermediate; /* of one expert */
} stallcast_experts;

typedef struct stallcast_recorder_options {
  int32_t query_window; /* queries of this many last prompt tokens are kept */
  int32_t chunk_tokens; /* rows of a tensor gathered before they are written */
  int64_t queue_bytes;  /* rows that may wait for the disk before write() waits too */
} stallcast_recorder_options;

/* Consecutive tokens of one tensor, all its heads. The element (head, token, dim) is at
 * data + head * head_stride + (token - first_token) * token_stride + dim, in elements. */
typedef struct stallcast_rows {
  int32_t kind;
  int32_t dtype;
  int32_t layer;
  int32_t heads;
  int32_t head_dim;
  int64_t first_token; /* counted from the sequence's start */
  int64_t tokens;
  int64_t head_stride;
  int64_t token_stride;
  const void* data;
} stallcast_rows;

STALLCAST_API int stallcast_abi_version(void);

/* The calling thread's last failure, one line; empty before the first. Valid until the thread's
 * next failing call. */
STALLCAST_API const char* stallcast_last_error(void);

/* Creates the file at `path` and a recorder; *out is null on failure. `options` may be null:
 * 64 tokens, 64 tokens, 256 MiB. */
STALLCAST_API int stallcast_recorder_open(const char* path, const stallcast_trace_info* info,
                                          const stallcast_recorder_options* options,
                                          stallcast_recorder** out);

/* Takes the next rows of a tensor; they are copied before this returns. Keys and values start at
 * token 0 and leave no gap. Of the prompt's queries, tokens before the last query_window may be
 * left out. A failure to write earlier rows shows here. */
STALLCAST_API int stallcast_recorder_write(stallcast_recorder* recorder,
                                           const stallcast_rows* rows);

/* Says what a layer's attention does; before the layer's first rows where its heads differ. */
STALLCAST_API int stallcast_recorder_set_attention(stallcast_recorder* recorder, int32_t layer,
                                                   const stallcast_attention* attention);

/* Says that the model has experts. */
STALLCAST_API int stallcast_recorder_set_experts(stallcast_recorder* recorder,
                                                 const stallcast_experts* experts);

/* Says for `count` experts of a layer how many tokens of the prompt, and of those decoded, its
 * router sent to each. */
STALLCAST_API int stallcast_recorder_set_expert_use(stallcast_recorder* recorder, int32_t layer,
                                                    int32_t count, const int64_t* prompt,
                                                    const int64_t* decode);

/* The prompt ends: the sequence has prompt_tokens tokens. Not called: the whole sequence is prompt.
 * Called again, after a second prompt in the same sequence: all before it is prompt then. What was
 * said of the model and the run is written, so that the file of a killed process predicts. */
STALLCAST_API int stallcast_recorder_begin_decode(stallcast_recorder* recorder,
                                                  int64_t prompt_tokens);

/* Adds a parameter to the file's description. */
STALLCAST_API int stallcast_recorder_set_parameter(stallcast_recorder* recorder, const char* name,
                                                   const char* value);

/* Writes everything gathered and waits until the file has it. */
STALLCAST_API int stallcast_recorder_flush(stallcast_recorder* recorder);

/* Flushes, ends the file and closes it. Only free may follow. After a failed close the file may be
 * cut short; its intact part stays readable. */
STALLCAST_API int stallcast_recorder_close(stallcast_recorder* recorder);

/* Frees the recorder; null is allowed. Without close before it: what was recorded is written, but
 * the file reads as truncated. */
STALLCAST_API void stallcast_recorder_free(stallcast_recorder* recorder);

/* Reads rows back from a file. In: rows->kind and rows->layer. Out: the other fields, data set to
 * `out`, strides of [head][token][dim]. With `out` null only the fields are filled in; else `out`
 * takes heads * tokens * head_dim elements and out_bytes must be exactly their size. */
STALLCAST_API int stallcast_trace_read(const char* path, stallcast_rows* rows, void* out,
                                       int64_t out_bytes);

#ifdef __cplusplus
}
#endif

#endif /* STALLCAST_CAPTURE_RECORDER_C_H_ */
