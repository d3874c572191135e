#include "traces/convert/chrome_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

namespace stallcast::traces::convert {
namespace {

constexpr size_t kFirstWindow = size_t{256} << 10;
constexpr size_t kLongestEvent = size_t{64} << 20;
constexpr size_t kLongestMember = size_t{1} << 20;

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// A stretch of the input in memory, with a 0 behind it.
class Window {
 public:
  explicit Window(Input* input) : input_(*input), buffer_(kFirstWindow + 1) { More(); }

  const char* begin() const { return buffer_.data() + begin_; }
  const char* end() const { return buffer_.data() + end_; }
  void Consume(const char* until) { begin_ = static_cast<size_t>(until - buffer_.data()); }
  // Bytes of the input before begin().
  uint64_t position() const { return before_ + begin_; }

  // Reads on, behind what is not consumed; false where nothing follows or what is not consumed is
  // too long.
  bool More() {
    if (ended_) return false;
    std::memmove(buffer_.data(), begin(), end_ - begin_);
    before_ += begin_;
    end_ -= begin_;
    begin_ = 0;
    if (end_ + 1 == buffer_.size()) {
      if (end_ >= kLongestEvent) {
        too_long_ = true;
        return false;
      }
      buffer_.resize(2 * buffer_.size());
    }
    const size_t room = buffer_.size() - 1 - end_;
    const size_t got = input_.Read(std::span(buffer_).subspan(end_, room));
    ended_ = got < room;
    end_ += got;
    buffer_[end_] = 0;
    return got > 0;
  }
  bool too_long() const { return too_long_; }

 private:
  Input& input_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  uint64_t before_ = 0;
  bool ended_ = false, too_long_ = false;
};

enum class Status : uint8_t { kDone, kMore, kDamaged };

// Reads one event from memory that may end within it.
class EventScanner {
 public:
  EventScanner(const char* begin, const char* end) : at_(begin), end_(end) {}

  const char* at() const { return at_; }

  Status Event(ChromeEvent* event) {
    return Object([&](std::string_view key) { return EventMember(key, event); });
  }

  // Any value.
  Status Value(JsonText* value) {
    SkipSpace();
    const char* const begin = at_;
    const char first = *at_;
    if (first == '"') return String(value);
    const bool container = first == '{' || first == '[';
    if (const Status status = container ? Container() : Scalar(); status != Status::kDone) {
      return status;
    }
    *value = {std::string_view(begin, static_cast<size_t>(at_ - begin)), false, false};
    return Status::kDone;
  }

 private:
  // What stands at the end of the memory is not known yet; a 0 within it is damage.
  Status Unexpected() const { return at_ >= end_ ? Status::kMore : Status::kDamaged; }

  void SkipSpace() {
    while (IsSpace(*at_)) ++at_;
  }

  Status String(JsonText* value) {
    const char* const begin = ++at_;
    bool escaped = false;
    while (true) {
      const auto* quote =
          static_cast<const char*>(std::memchr(at_, '"', static_cast<size_t>(end_ - at_)));
      if (quote == nullptr) return at_ = end_, Status::kMore;
      const auto* escape =
          static_cast<const char*>(std::memchr(at_, '\\', static_cast<size_t>(quote - at_)));
      if (escape == nullptr) {
        *value = {std::string_view(begin, static_cast<size_t>(quote - begin)), true, escaped};
        at_ = quote + 1;
        return Status::kDone;
      }
      escaped = true;
      if (escape + 2 > end_) return at_ = end_, Status::kMore;
      at_ = escape + 2;
    }
  }

  Status Scalar() {
    const char* const begin = at_;
    while (*at_ != ',' && *at_ != '}' && *at_ != ']' && *at_ != '"' && *at_ != ':' &&
           static_cast<unsigned char>(*at_) > ' ') {
      ++at_;
    }
    if (at_ >= end_) return Status::kMore;
    return at_ == begin ? Status::kDamaged : Status::kDone;
  }

  // Brackets are counted, not matched; no recursion, whatever the depth.
  Status Container() {
    int64_t depth = 0;
    JsonText ignored;
    do {
      switch (*at_) {
        case '"':
          if (const Status status = String(&ignored); status != Status::kDone) return status;
          continue;
        case '{':
        case '[':
          ++depth;
          break;
        case '}':
        case ']':
          --depth;
          break;
        case 0:
          return Unexpected();
        default:
          break;
      }
      ++at_;
    } while (depth > 0);
    return Status::kDone;
  }

  template <typename Member>
  Status Object(Member member) {
    if (*at_ != '{') return Unexpected();
    ++at_;
    SkipSpace();
    if (*at_ == '}') return ++at_, Status::kDone;
    while (true) {
      SkipSpace();
      if (*at_ == '}') return ++at_, Status::kDone;  // behind a comma too many
      if (*at_ != '"') return Unexpected();
      JsonText key;
      if (const Status status = String(&key); status != Status::kDone) return status;
      SkipSpace();
      if (*at_ != ':') return Unexpected();
      ++at_;
      SkipSpace();
      if (const Status status = member(key.text); status != Status::kDone) return status;
      SkipSpace();
      if (*at_ == '}') return ++at_, Status::kDone;
      if (*at_ != ',') return Unexpected();
      ++at_;
    }
  }

  Status EventMember(std::string_view key, ChromeEvent* event) {
    if (key == "args" && *at_ == '{') {
      return Object([&](std::string_view argument) {
        JsonText ignored;
        JsonText* const place = ArgumentPlace(argument, &event->arguments);
        return Value(place != nullptr ? place : &ignored);
      });
    }
    if (key == "ph") {
      JsonText phase;
      const Status status = Value(&phase);
      event->phase = phase.text.size() == 1 ? phase.text[0] : 0;
      return status;
    }
    JsonText ignored;
    JsonText* const place = MemberPlace(key, event);
    return Value(place != nullptr ? place : &ignored);
  }

  static JsonText* MemberPlace(std::string_view key, ChromeEvent* event) {
    switch (key.size()) {
      case 2:
        if (key == "ts") return &event->time;
        if (key == "id") return &event->id;
        if (key == "bp") return &event->binding;
        break;
      case 3:
        if (key == "dur") return &event->duration;
        if (key == "pid") return &event->process;
        if (key == "tid") return &event->thread;
        if (key == "cat") return &event->category;
        if (key == "id2") return &event->id2;
        break;
      case 4:
        if (key == "name") return &event->name;
        break;
      case 5:
        if (key == "scope") return &event->scope;
        break;
      default:
        break;
    }
    return nullptr;
  }

  static JsonText* ArgumentPlace(std::string_view key, ChromeEvent::Arguments* arguments) {
    switch (key.size()) {
      case 2:
        if (key == "op") return &arguments->op;
        break;
      case 4:
        if (key == "name") return &arguments->name;
        if (key == "step") return &arguments->step;
        if (key == "lane") return &arguments->lane;
        if (key == "kind") return &arguments->kind;
        break;
      case 5:
        if (key == "bytes") return &arguments->bytes;
        if (key == "layer") return &arguments->layer;
        if (key == "title") return &arguments->title;
        if (key == "notes") return &arguments->notes;
        break;
      case 6:
        if (key == "device") return &arguments->device;
        if (key == "stream") return &arguments->stream;
        if (key == "labels") return &arguments->labels;
        if (key == "origin") return &arguments->origin;
        break;
      case 7:
        if (key == "compute") return &arguments->compute;
        break;
      case 10:
        if (key == "sort_index") return &arguments->sort_index;
        break;
      case 11:
        if (key == "correlation") return &arguments->correlation;
        break;
      default:
        break;
    }
    return nullptr;
  }

  const char* at_;
  const char* end_;
};

class Reader {
 public:
  Reader(Input* input, const ChromeHandler& handler)
      : input_(*input), handler_(handler), window_(input) {}

  ChromeEventsResult Run() {
    SkipByteOrderMark();
    const bool whole = Next() == '[' ? Events() : Next() == '{' && Members();
    if (result_.fault.empty()) result_.fault = input_.fault();
    if (window_.too_long()) {
      result_.fault = fmt::format("at byte {}: something of more than {} MiB", window_.position(),
                                  kLongestEvent >> 20);
    }
    result_.cut = !whole && result_.fault.empty();
    return std::move(result_);
  }

 private:
  void SkipByteOrderMark() {
    if (std::string_view(window_.begin(), window_.end()).starts_with("\xef\xbb\xbf")) {
      window_.Consume(window_.begin() + 3);
    }
  }

  // The next byte that is no space, or 0 at the end.
  char Next() {
    while (true) {
      const char* at = window_.begin();
      while (at < window_.end() && IsSpace(*at)) ++at;
      window_.Consume(at);
      if (at < window_.end()) return *at;
      if (!window_.More()) return 0;
    }
  }
  void Take() { window_.Consume(window_.begin() + 1); }

  bool Damaged(std::string_view what) {
    result_.fault = fmt::format("at byte {}: {}", window_.position(), what);
    return false;
  }

  // The members of the outer object; false where it does not end.
  bool Members() {
    Take();
    while (true) {
      char c = Next();
      if (c == ',') {
        Take();
        continue;
      }
      if (c == '}') return true;
      if (c == 0) return false;
      if (c != '"') return Damaged("no JSON");
      const std::optional<std::string> key = Key();
      if (!key) return false;
      c = Next();
      if (c == 0) return false;
      if (c != ':') return Damaged("no JSON");
      Take();
      if (*key == "traceEvents" && Next() == '[') {
        if (!Events()) return false;
      } else if (!Member(*key)) {
        return false;
      }
    }
  }

  std::optional<std::string> Key() {
    while (true) {
      EventScanner scanner(window_.begin(), window_.end());
      JsonText key;
      if (scanner.Value(&key) == Status::kDone) {
        std::string text(key.text);
        window_.Consume(scanner.at());
        return text;
      }
      if (!window_.More()) return std::nullopt;
    }
  }

  bool Member(const std::string& key) {
    if (Next() == 0) return false;
    while (true) {
      EventScanner scanner(window_.begin(), window_.end());
      JsonText value;
      const Status status = scanner.Value(&value);
      if (status == Status::kDone) {
        const std::string_view json(window_.begin(),
                                    static_cast<size_t>(scanner.at() - window_.begin()));
        if (json.size() <= kLongestMember) handler_.member(key, json);
        window_.Consume(scanner.at());
        return true;
      }
      if (status == Status::kDamaged) return Damaged("no JSON");
      if (!window_.More()) return false;
    }
  }

  // False where the array does not end.
  bool Events() {
    result_.found = true;
    Take();
    while (true) {
      const char c = Next();
      if (c == ']') {
        Take();
        return true;
      }
      if (c == 0) return false;
      if (c == ',') {
        Take();
      } else if (!Event()) {
        return false;
      }
    }
  }

  bool Event() {
    while (true) {
      EventScanner scanner(window_.begin(), window_.end());
      event_ = {};
      const Status status = scanner.Event(&event_);
      if (status == Status::kDone) {
        result_.foreign = event_.phase == 0 && !any_;
        any_ |= event_.phase != 0;
        handler_.event(event_);
        window_.Consume(scanner.at());
        Progress();
        return true;
      }
      if (status == Status::kDamaged) {
        result_.foreign |= !any_;
        ++result_.damaged;
        window_.Consume(std::max(scanner.at(), window_.begin() + 1));
        return ToNextEvent();
      }
      if (!window_.More()) return false;
    }
  }

  // After damage: to the next "{" behind a comma; false where there is none.
  bool ToNextEvent() {
    char before = 0;
    for (char c = Next(); c != 0; c = Next()) {
      if (c == '{' && before == ',') return true;
      before = c;
      Take();
    }
    return false;
  }

  void Progress() {
    constexpr int64_t kEvents = 65'536;
    if (handler_.progress && ++events_ % kEvents == 0) handler_.progress(input_.share());
  }

  Input& input_;
  const ChromeHandler& handler_;
  Window window_;
  ChromeEvent event_;
  int64_t events_ = 0;
  bool any_ = false;  // an element with a phase
  ChromeEventsResult result_;
};

}  // namespace

std::string JsonText::Decoded() const {
  if (!escaped) return std::string(text);
  const nlohmann::json json =
      nlohmann::json::parse('"' + std::string(text) + '"', nullptr, /*allow_exceptions=*/false);
  return json.is_string() ? json.get<std::string>() : std::string(text);
}

int64_t JsonText::Integer(int64_t fallback) const {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size() ? value : fallback;
}

ChromeEventsResult ReadChromeEvents(Input* input, const ChromeHandler& handler) {
  return Reader(input, handler).Run();
}

}  // namespace stallcast::traces::convert
