import 'uplot/dist/uPlot.min.css';
import './views.css';
import './base.css';
import './dashboard.css';
import './lessons.css';
import './recordings.css';
