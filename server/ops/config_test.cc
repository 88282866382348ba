#include "server/ops/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "server/ops/config_toml.h"
#include "server/ops/options.h"

namespace cuvil::ops {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kHash(64, 'b');

// Writes files of a test and reads configurations from them.
class ConfigTest : public testing::Test {
 protected:
  ConfigTest()
      : folder_(testing::TempDir() + "/config_" + std::to_string(getpid()) + "_" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_);
    sources_.default_path = folder_ + "/absent.toml";
  }
  ~ConfigTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  void Toml(const std::string& text) { sources_.config_path = Write("cuvil.toml", text); }
  Effective Load() {
    absl::StatusOr<Effective> effective = LoadConfig(sources_);
    EXPECT_TRUE(effective.ok()) << effective.status();
    return effective.ok() ? *effective : Effective();
  }
  std::string Error() { return std::string(LoadConfig(sources_).status().message()); }

  std::string folder_;
  Sources sources_;
};

TEST_F(ConfigTest, DefaultsAloneAreValid) {
  const Effective effective = Load();
  EXPECT_EQ(effective.config.listen, "127.0.0.1:8000");
  EXPECT_EQ(effective.OriginOf("listen").Text(), "default");
  EXPECT_TRUE(effective.warnings.empty());
  EXPECT_EQ(effective.file, "");
}

TEST_F(ConfigTest, EachLayerOverridesTheOneBelow) {
  Toml("[server]\nlisten = \"127.0.0.1:1\"\n[limits]\nmax_running = 3\nqueue_requests = 4\n");
  sources_.environment = {{"CUVIL_LISTEN", "127.0.0.1:2"}, {"CUVIL_MAX_RUNNING", "5"}};
  sources_.flags = {{"listen", "127.0.0.1:3"}, {"listen", "127.0.0.1:4"}};
  const Effective effective = Load();
  EXPECT_EQ(effective.config.listen, "127.0.0.1:4");
  EXPECT_EQ(effective.config.max_running, 5);
  EXPECT_EQ(effective.config.queue_requests, 4);
  EXPECT_EQ(effective.OriginOf("listen").Text(), "flag --listen");
  EXPECT_EQ(effective.OriginOf("max_running").Text(), "env CUVIL_MAX_RUNNING");
  EXPECT_EQ(effective.OriginOf("queue_requests").Text(), sources_.config_path + ":5");
  EXPECT_EQ(effective.OriginOf("queue_tokens").Text(), "default");
}

TEST_F(ConfigTest, TheFileIsFlagThenVariableThenDefaultPlace) {
  sources_.default_path = Write("default.toml", "[engine]\nthreads = 1\n");
  EXPECT_EQ(Load().config.threads, 1);
  sources_.environment["CUVIL_CONFIG"] = Write("variable.toml", "[engine]\nthreads = 2\n");
  EXPECT_EQ(Load().config.threads, 2);
  sources_.config_path = Write("flag.toml", "[engine]\nthreads = 3\n");
  EXPECT_EQ(Load().config.threads, 3);
  sources_.config_path = folder_ + "/missing.toml";
  EXPECT_EQ(LoadConfig(sources_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ConfigTest, EveryKindOfValueHasATomlForm) {
  Toml(R"(
    [server]
    max_body_bytes = "16MiB"
    max_header_bytes = 4096
    sse_ping_s = 2.5
    drain_timeout_s = "2m"
    allowed_hosts = ["a.example", "b.example"]
    [engine]
    prefix_cache = false
    numerics = "exact"
    [limits]
    itl_target_ms = "0.2s"
    [[models]]
    path = "/m/one.gguf"
    [[models]]
    name = "two"
    path = "/m/2.gguf"
    preload = false
    numerics = "deterministic"
    max_kv_len = 1024
    kv_sinks = 8
    kv_tokens = 4096
    [[api_keys]]
    hash = "sha256:)" +
       kHash + R"("
    tenant = "acme"
    weight = 2
    admin = true
  )");
  const Config config = Load().config;
  EXPECT_EQ(config.max_body_bytes, 16 << 20);
  EXPECT_EQ(config.max_header_bytes, 4096);
  EXPECT_EQ(config.sse_ping_s, 2.5);
  EXPECT_EQ(config.drain_timeout_s, 120);
  EXPECT_THAT(config.allowed_hosts, ElementsAre("a.example", "b.example"));
  EXPECT_FALSE(config.prefix_cache);
  EXPECT_EQ(config.numerics, "exact");
  EXPECT_EQ(config.itl_target_ms, 200);
  ASSERT_EQ(config.models.size(), 2u);
  EXPECT_EQ(config.models[0].name, "one");
  EXPECT_TRUE(config.models[0].preload);
  EXPECT_EQ(config.models[1].name, "two");
  EXPECT_FALSE(config.models[1].preload);
  EXPECT_EQ(config.models[1].numerics, "deterministic");
  EXPECT_EQ(config.models[1].max_kv_len, 1024);
  EXPECT_EQ(config.models[1].kv_sinks, 8);
  EXPECT_EQ(config.models[1].kv_tokens, 4096);
  ASSERT_EQ(config.api_keys.size(), 1u);
  EXPECT_EQ(config.api_keys[0].tenant, "acme");
  EXPECT_EQ(config.api_keys[0].weight, 2);
  EXPECT_TRUE(config.api_keys[0].admin);
}

TEST_F(ConfigTest, ListsComeFromVariablesAndRepeatedFlags) {
  sources_.environment = {{"CUVIL_MODELS", "a=/m/a.gguf, b=/m/b.gguf"},
                          {"CUVIL_ALLOWED_HOSTS", "x,y"},
                          {"CUVIL_API_KEYS", "sha256:" + kHash + ":t:3"}};
  sources_.flags = {{"allowed_hosts", "z"}, {"allowed_hosts", "w"}};
  const Effective effective = Load();
  ASSERT_EQ(effective.config.models.size(), 2u);
  EXPECT_EQ(effective.config.models[1].path, "/m/b.gguf");
  EXPECT_THAT(effective.config.allowed_hosts, ElementsAre("z", "w"));
  EXPECT_EQ(effective.config.api_keys[0].weight, 3);
  EXPECT_EQ(effective.OriginOf("allowed_hosts").Text(), "flag --allowed-host");
}

TEST_F(ConfigTest, UnknownKeysNameTheLineAndTheLikelyKey) {
  Toml("[server]\n\nlisen = \"x\"\n");
  EXPECT_THAT(Error(), HasSubstr("cuvil.toml:3: unknown key 'server.lisen'; did you mean "
                                 "'server.listen'?"));
  Toml("[sever]\nlisten = \"x\"\n");
  EXPECT_THAT(Error(), HasSubstr("unknown key 'sever'; did you mean 'server'?"));
  Toml("[server]\nthreads = 2\n");
  EXPECT_THAT(Error(), HasSubstr("unknown key 'server.threads'; it belongs to [engine]"));
  Toml("threads = 2\n");
  EXPECT_THAT(Error(), HasSubstr("it belongs to [engine]"));
  Toml("[[models]]\npath = \"/x.gguf\"\nprelaod = true\n");
  EXPECT_THAT(Error(), HasSubstr("cuvil.toml:3: unknown key 'prelaod'; did you mean 'preload'?"));
  Toml("server = 3\n");
  EXPECT_THAT(Error(), HasSubstr("unknown key 'server'"));
}

TEST_F(ConfigTest, WrongValuesNameTheLineAndWhatIsTaken) {
  Toml("[limits]\nmax_running = \"many\"\n");
  EXPECT_THAT(Error(), HasSubstr("cuvil.toml:2: max_running: takes a whole number, not 'many'"));
  Toml("[limits]\nmax_running = 0\n");
  EXPECT_THAT(Error(), HasSubstr("takes 1 to 512 sequences, not 0"));
  Toml("[limits]\nmax_running = 600\n");
  EXPECT_THAT(Error(), HasSubstr("max_running: takes 1 to 512 sequences, not 600"));
  Toml("[limits]\nmax_running = 1.5\n");
  EXPECT_THAT(Error(), HasSubstr("takes a whole number"));
  Toml("[limits]\nmax_running = [1, 2]\n");
  EXPECT_THAT(Error(), HasSubstr("takes one value, not a list"));
  Toml("[engine]\nnumerics = \"fsat\"\n");
  EXPECT_THAT(Error(), HasSubstr("did you mean 'fast'?"));
  Toml("[server]\nlisten = 8000\n");
  EXPECT_THAT(Error(), HasSubstr("takes HOST:PORT"));
  Toml("[server]\nlisten = 1979-05-27\n");
  EXPECT_THAT(Error(), HasSubstr("takes one value, not a table or date"));
  Toml("[server\n");
  EXPECT_THAT(Error(), HasSubstr("cuvil.toml:1: "));
  Toml("[engine]\nthreads = 1\nthreads = 2\n");
  EXPECT_THAT(Error(), HasSubstr("cuvil.toml:3: "));
  Toml("[[models]]\nname = \"x\"\n");
  EXPECT_THAT(Error(), HasSubstr("a model needs a path"));
  Toml("models = \"x\"\n");
  EXPECT_THAT(Error(), HasSubstr("models is a list"));
}

TEST_F(ConfigTest, VariablesAndFlagsSayTheirNameWhenWrong) {
  sources_.environment = {{"CUVIL_QUEUE_REQUESTS", "-1"}};
  EXPECT_THAT(Error(), HasSubstr("CUVIL_QUEUE_REQUESTS: queue_requests: takes 1 to"));
  sources_.environment = {{"CUVIL_LISTN", "x"}};
  EXPECT_THAT(Error(), HasSubstr("'CUVIL_LISTN'; did you mean 'CUVIL_LISTEN'?"));
  sources_.environment = {{"CUVIL_BANANA", "x"}};
  EXPECT_THAT(Error(), HasSubstr("unknown environment variable 'CUVIL_BANANA'"));
  sources_.environment.clear();
  sources_.flags = {{"request_timeout_s", "soon"}};
  EXPECT_THAT(Error(), HasSubstr("--request-timeout-s: request_timeout_s: takes a duration"));
}

TEST_F(ConfigTest, AnEmptyVariableIsUnset) {
  sources_.environment = {{"CUVIL_LISTEN", ""}, {"CUVIL_THREADS", ""}, {"CUVIL_CONFIG", ""}};
  EXPECT_EQ(Load().config.listen, "127.0.0.1:8000");
}

TEST_F(ConfigTest, VariablesOfOthersAreLeftAlone) {
  sources_.environment = {{"CUVIL_MODEL_DIR", "x"},
                          {"CUVIL_SOURCE_DIR", "x"},
                          {"CUVIL_FUZZ_RUNS", "x"},
                          {"CUVIL_SERVICE_HOST", "10.0.0.1"},
                          {"CUVIL_SERVICE_PORT", "8000"},
                          {"CUVIL_SERVICE_PORT_HTTP", "8000"},
                          {"CUVIL_PORT", "tcp://10.0.0.1:8000"},
                          {"CUVIL_PORT_8000_TCP", "tcp://10.0.0.1:8000"},
                          {"CUVIL_GRPC_PORT_8001_TCP_ADDR", "10.0.0.1"}};
  Load();
  sources_.environment = {{"CUVIL_PORT", "8000"}};
  EXPECT_THAT(Error(), HasSubstr("CUVIL_PORT"));
}

TEST_F(ConfigTest, TheModelVariableServesWhenNothingElseNamesAModel) {
  sources_.environment = {{"CUVIL_MODEL", "/m/Smol.gguf"}};
  Effective effective = Load();
  ASSERT_EQ(effective.config.models.size(), 1u);
  EXPECT_EQ(effective.config.models[0].name, "Smol");
  EXPECT_EQ(effective.config.models[0].path, "/m/Smol.gguf");
  EXPECT_EQ(effective.OriginOf("models").Text(), "env CUVIL_MODEL");
  sources_.flags = {{"models", "other=/m/o.gguf"}};
  effective = Load();
  ASSERT_EQ(effective.config.models.size(), 1u);
  EXPECT_EQ(effective.config.models[0].name, "other");
}

TEST_F(ConfigTest, ModelsMustGoTogether) {
  sources_.flags = {{"models", "/a/x.gguf"}, {"models", "/b/x.gguf"}};
  EXPECT_THAT(Error(), HasSubstr("the name 'x' is given twice"));
  sources_.flags = {{"models", "smol=/a/x.gguf"}, {"default_model", "smoll"}};
  EXPECT_THAT(Error(), HasSubstr("no model is named 'smoll'; did you mean 'smol'?"));
  sources_.flags.clear();
  Toml("[[models]]\npath=\"/x.gguf\"\nmax_kv_len = 4\n");
  EXPECT_THAT(Error(), HasSubstr("kv_sinks must be below max_kv_len"));
}

TEST_F(ConfigTest, APublicAddressNeedsAKeyOrAnExplicitNo) {
  for (const char* name : {"listen", "grpc_listen"}) {
    sources_.flags = {{name, "0.0.0.0:8000"}};
    EXPECT_THAT(Error(), HasSubstr("no API key is set")) << name;
    sources_.flags.push_back({"allow_no_auth", "true"});
    EXPECT_EQ(Load().warnings.size(), 1u);
    sources_.flags.back() = {"api_keys", "sha256:" + kHash};
    EXPECT_TRUE(Load().warnings.empty());
  }
}

TEST_F(ConfigTest, KeysFileAddsToTheKeys) {
  const std::string path =
      Write("keys", "# team keys\nsha256:" + kHash + ":a\n\n  sha256:" + kHash + ":b  # second\n");
  sources_.flags = {{"api_keys_file", path}, {"api_keys", "sha256:" + kHash + ":c"}};
  const Config config = Load().config;
  ASSERT_EQ(config.api_keys.size(), 3u);
  EXPECT_EQ(config.api_keys[2].tenant, "b");
  Write("keys", "ok?\n");
  EXPECT_THAT(Error(), HasSubstr("keys:1: takes sha256:HEX"));
}

TEST_F(ConfigTest, PrintingShowsOriginsAndHidesHashes) {
  sources_.flags = {{"api_keys", "sha256:" + kHash + ":acme"}, {"models", "m=/x.gguf"}};
  sources_.environment = {{"CUVIL_MAX_BODY_BYTES", "1MiB"}};
  const Effective effective = Load();
  const std::string table = EffectiveTable(effective);
  EXPECT_THAT(table, HasSubstr("sha256:bbbbbbbb…:acme"));
  EXPECT_THAT(table, Not(HasSubstr(kHash)));
  EXPECT_THAT(table, HasSubstr("env CUVIL_MAX_BODY_BYTES"));
  const Json json = EffectiveJson(effective);
  EXPECT_EQ(json["max_body_bytes"]["value"], 1 << 20);
  EXPECT_EQ(json["max_body_bytes"]["origin"], "env CUVIL_MAX_BODY_BYTES");
  EXPECT_EQ(json["prefix_cache"]["value"], true);
  EXPECT_EQ(json["models"]["value"][0]["path"], "/x.gguf");
  EXPECT_THAT(WriteJson(json), Not(HasSubstr(kHash)));
  EXPECT_EQ(json.size(), Options().size());
}

// Takes the comment sign off every setting of the example.
std::string Uncommented(const std::string& example) {
  std::string text, line;
  std::istringstream lines(example);
  while (std::getline(lines, line)) {
    const bool setting = line.starts_with("# [[") || line.find(" = ") != std::string::npos;
    text += (setting && line.starts_with("# ") ? line.substr(2) : line) + "\n";
  }
  return text;
}

TEST_F(ConfigTest, TheExampleIsAValidFileOfDefaults) {
  Effective untouched;
  ASSERT_TRUE(ApplyToml(ExampleToml(), "example", &untouched).ok());
  EXPECT_TRUE(untouched.origins.empty());

  Effective effective;
  const absl::Status read = ApplyToml(Uncommented(ExampleToml()), "example", &effective);
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(effective.origins.size(), Options().size());
  for (const Option& option : Options()) {
    if (!option.example.empty() || option.section.empty()) continue;
    EXPECT_EQ(OptionText(option, effective.config, false), OptionText(option, Config(), false))
        << option.name;
  }
  EXPECT_EQ(effective.config.models.size(), 1u);
  EXPECT_EQ(effective.config.api_keys.size(), 1u);
}

TEST(OptionsTest, TheTableIsConsistent) {
  std::set<std::string> names, flags;
  for (const Option& option : Options()) {
    EXPECT_TRUE(names.insert(std::string(option.name)).second) << option.name;
    EXPECT_TRUE(flags.insert(option.Flag()).second) << option.name;
    EXPECT_FALSE(IsServiceLink(option.Variable(), "tcp://1.2.3.4:5")) << option.name;
    EXPECT_FALSE(IsKnownVariable(option.Variable())) << option.name;
    EXPECT_FALSE(option.doc.empty() || option.doc.ends_with(".")) << option.name;
    const bool number = option.kind == OptionKind::kCount || option.kind == OptionKind::kSize ||
                        option.kind == OptionKind::kDuration;
    EXPECT_EQ(number, option.min < option.max) << option.name;
    EXPECT_EQ(option.kind == OptionKind::kChoice, !option.choices.empty()) << option.name;
    if (option.is_list()) continue;
    // The default satisfies its own rules, and its text reads back.
    Config config;
    const std::string text = OptionText(option, Config(), false);
    EXPECT_TRUE(SetOption(option, {text}, &config).ok()) << option.name << " " << text;
    EXPECT_EQ(OptionText(option, config, false), text);
  }
  EXPECT_EQ(FindOption("queue_requests")->Variable(), "CUVIL_QUEUE_REQUESTS");
  EXPECT_EQ(FindOption("queue_requests")->Flag(), "--queue-requests");
  EXPECT_EQ(FindOption("queue_requests")->TomlKey(), "limits.queue_requests");
  EXPECT_EQ(FindOption("models")->Flag(), "--model");
  EXPECT_EQ(FindOption("nothing"), nullptr);
}

// gRPC takes it as an int: 0 or less from 2 GiB on.
TEST(OptionsTest, ABodysLimitFitsAnInt) {
  Config config;
  EXPECT_TRUE(SetOption(*FindOption("max_body_bytes"), {"1GiB"}, &config).ok());
  EXPECT_THAT(SetOption(*FindOption("max_body_bytes"), {"2GiB"}, &config).message(),
              HasSubstr("max_body_bytes"));
}

TEST(OptionsTest, TheReferenceNamesEveryOption) {
  const std::string reference = OptionReference();
  for (const Option& option : Options()) {
    EXPECT_THAT(reference, HasSubstr(option.Flag()));
    EXPECT_THAT(reference, HasSubstr(option.Variable()));
  }
}

TEST(EndpointTest, HostAndPort) {
  EXPECT_EQ(ParseEndpoint("127.0.0.1:0")->port, 0);
  EXPECT_EQ(ParseEndpoint("[::1]:8000")->host, "::1");
  EXPECT_EQ(ParseEndpoint("localhost:65535")->host, "localhost");
  for (const char* text : {"", ":", ":80", "host", "host:", "host:x", "host:-1", "host:65536",
                           "::1:80", "[]:80", "a/b:80", "host:080", "http://x:80"}) {
    EXPECT_FALSE(ParseEndpoint(text).ok()) << text;
  }
}

TEST(EndpointTest, LoopbackIsAnAddressNotAPrefix) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost", "LOCALHOST"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "127.example.org", "127.0.0.1.example.org", "10.0.0.1",
                           "127.0.0", "127.0.0.256", "localhost.example.org", ""}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(CuvilEnvironmentTest, TakesOnlyOurs) {
  const char* environment[] = {"PATH=/bin", "CUVIL_LISTEN=a=b", "CUVIL_BROKEN", nullptr};
  const auto variables = CuvilEnvironment(environment);
  EXPECT_EQ(variables.size(), 1u);
  EXPECT_EQ(variables.at("CUVIL_LISTEN"), "a=b");
}

}  // namespace
}  // namespace cuvil::ops
