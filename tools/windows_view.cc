#include "tools/windows_view.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <memory>

#include "engine/checkpoint.h"
#include "tools/commands.h"
#include "tools/progress.h"
#include "tools/windows_image.h"

namespace lookback::tools {

namespace {

constexpr int64_t kMaxContext = int64_t{1} << 31;
constexpr int64_t kMaxCells = 64;
constexpr int64_t kHeadsPerLine = 16;
constexpr std::array<std::string_view, 5> kShades = {"·", "░", "▒", "▓", "█"};
// Dark blue to yellow in the 256-colour cube, one for each shade.
constexpr std::array<int, 5> kColours = {18, 25, 36, 114, 226};

/// 0 (a token or so) to 4 (all of the context), by the logarithm of the window.
size_t Shade(HeadWindow head, int64_t context) {
  if (head.full() || head.window >= context) return kShades.size() - 1;
  const double share = std::log2(static_cast<double>(head.window) + 1.0) /
                       std::log2(static_cast<double>(context) + 1.0);
  const auto steps = static_cast<double>(kShades.size() - 1);
  return static_cast<size_t>(std::clamp(share * steps, 0.0, steps - 1.0));
}

std::string Fixed3(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

std::string PadLeft(std::string text, size_t width) {
  if (text.size() >= width) return text;
  return std::string(width - text.size(), ' ').append(text);
}

/// The product, or the largest int64 where it does not fit: a hostile config may multiply up to it.
int64_t SaturatingProduct(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return INT64_MAX;
  }
  return product;
}

std::string CellText(HeadWindow head) {
  std::string text = head.full() ? "full" : StrCat(head.window);
  // Sinks add nothing to a full window.
  if (head.sinks > 0 && !head.full()) text += StrCat("+", head.sinks);
  return text;
}

}  // namespace

std::string HeatMap(const WindowTable& table, int64_t context, bool colour) {
  const int64_t per_cell = (table.heads() + kMaxCells - 1) / kMaxCells;
  const std::string_view bold = per_cell > 1 ? " query heads, several to a cell" : " query heads";
  std::string out = StrCat("layer  ", table.heads(), bold,
                           "; shade: log of window, full block = all of ", context, " tokens\n");
  for (int64_t layer = 0; layer < table.layers(); ++layer) {
    out += StrCat(PadLeft(StrCat(layer), 5), "  ");
    for (int64_t first = 0; first < table.heads(); first += per_cell) {
      size_t shade = 0;
      for (int64_t head = first; head < std::min(first + per_cell, table.heads()); ++head) {
        shade = std::max(shade, Shade(table.at(layer, head), context));
      }
      if (colour) out += StrCat("\033[38;5;", kColours[shade], "m");
      out += kShades[shade];
      out += kShades[shade];
      if (colour) out += "\033[0m";
    }
    out += StrCat("  ACR ", Fixed3(table.AcrOfLayer(layer, context)), "\n");
  }
  return out;
}

std::string WindowText(const WindowTable& table) {
  size_t width = 4;
  for (int64_t layer = 0; layer < table.layers(); ++layer) {
    for (int64_t head = 0; head < table.heads(); ++head) {
      width = std::max(width, CellText(table.at(layer, head)).size());
    }
  }
  std::string out;
  for (int64_t layer = 0; layer < table.layers(); ++layer) {
    out += StrCat(PadLeft(StrCat(layer), 5), " ");
    for (int64_t head = 0; head < table.heads(); ++head) {
      if (head > 0 && head % kHeadsPerLine == 0) out += "\n      ";
      out += PadLeft(CellText(table.at(layer, head)), width + 1);
    }
    out += "\n";
  }
  return out;
}

Json WindowJson(const WindowTable& table, int64_t context) {
  Json out = table.ToJson();
  out["hash"] = table.Hash();
  out["context"] = context;
  out["acr"] = table.Acr(context);
  Json per_layer = Json::array();
  for (int64_t layer = 0; layer < table.layers(); ++layer) {
    per_layer.push_back(table.AcrOfLayer(layer, context));
  }
  out["acr_per_layer"] = std::move(per_layer);
  return out;
}

int64_t TrainContext(const ModelConfig& config) {
  const int64_t table = config.windows.train_context();
  return table > 0 ? table : config.train_context;
}

KvBytes SequenceKvBytes(const ModelConfig& config, int64_t context, int64_t element_bytes) {
  int64_t windowed = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (int64_t kv_head = 0; kv_head < config.kv_heads; ++kv_head) {
      windowed += VisibleKeys(config.windows.KvHead(layer, kv_head, config.group()), context);
    }
  }
  const int64_t token_bytes = 2 * config.head_dim * element_bytes;
  return {SaturatingProduct({windowed, token_bytes}),
          SaturatingProduct({config.layers * config.kv_heads, context, token_bytes})};
}

Result<std::string> WindowsReport(const std::string& path, bool json, int64_t context,
                                  bool colour) {
  LOOKBACK_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(path));
  const WindowTable& table = checkpoint->config().windows;
  if (context == 0) context = TrainContext(checkpoint->config());
  if (context < 1 || context > kMaxContext) {
    return Mismatch("--context", context, StrCat("an integer from 1 to ", kMaxContext));
  }
  if (json) return DumpJson(WindowJson(table, context), 1) + "\n";
  return StrCat(HeatMap(table, context, colour), "ACR at ", context, ": ",
                Fixed3(table.Acr(context)), "\nsource: ", Quoted(table.source()),
                "\nhash: ", table.Hash(), "\n");
}

Status WriteImages(const std::string& path, int64_t context, const std::string& svg,
                   const std::string& png) {
  if (svg.empty() && png.empty()) return {};
  LOOKBACK_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(path));
  const WindowTable& table = checkpoint->config().windows;
  if (context == 0) context = TrainContext(checkpoint->config());
  if (!svg.empty()) LOOKBACK_RETURN_IF_ERROR(WriteWholeFile(svg, WindowSvg(table, context)));
  if (!png.empty()) LOOKBACK_RETURN_IF_ERROR(WriteWholeFile(png, WindowPng(table, context)));
  return {};
}

void AddWindows(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string path;
    bool json = false;
    int64_t context = 0;
    std::string svg;
    std::string png;
  };
  CLI::App* command = app.add_subcommand("windows", "Draw the window table of a lookback file");
  const auto flags = std::make_shared<Flags>();
  command->add_option("FILE", flags->path, "A lookback file")->required();
  command->add_flag("--json", flags->json,
                    "Print the table as JSON, as convert --windows reads it");
  command
      ->add_option("--context", flags->context,
                   "Tokens at which ACR and shades are taken (default: the training context)")
      ->check(CLI::Range(int64_t{1}, kMaxContext));
  command->add_option("--svg", flags->svg, "Write the heat map to this file, as SVG");
  command->add_option("--png", flags->png, "The same as PNG, without words");
  command->footer(
      "Examples:\n"
      "  lookback windows demo.safetensors --svg windows.svg\n"
      "  lookback windows demo.safetensors --context 4096\n"
      "  lookback windows demo.safetensors --json > windows.json");
  command->callback([flags, &exit_code] {
    const Result<std::string> report =
        WindowsReport(flags->path, flags->json, flags->context, IsColourTerminal(STDOUT_FILENO));
    if (!report.ok()) {
      exit_code = Report(report.status());
      return;
    }
    exit_code = Report(WriteImages(flags->path, flags->context, flags->svg, flags->png));
    if (exit_code == 0) std::fputs(report->c_str(), stdout);
  });
}

}  // namespace lookback::tools
