import * as cheerio from "cheerio";
export default () => {
  const $ = cheerio.load("<ul id=l><li class=a>1</li><li>2 <b>x</b></li></ul>");
  $("li.a").attr("title", "é").after("<li>new</li>");
  return [$("li").map((_, item) => $(item).text()).get(), $("#l > li:last-child b").text(), $.html()];
};
